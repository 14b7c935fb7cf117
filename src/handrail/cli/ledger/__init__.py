"""`handrail ledger`.

- `show`: `list`, `show`.
- `changes`: `reconcile`, `invalidate`, `prune`.
"""
