"""`handrail sessions`.

- `listing`: `list`, and which sessions a command means.
- `show`: `show`, `fork`.
- `removal`: `delete`, `prune`.
"""
