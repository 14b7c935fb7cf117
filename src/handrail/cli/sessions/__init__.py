"""`handrail sessions`.

- `show`: `list`, `show`, `fork`.
- `filter`: which sessions are meant, by agent, tags, state and age.
- `removal`: `delete`, `prune`.
"""
