"""`handrail sessions`.

- `show`: `list`, `show`, `fork`.
- `conversation`: `show --conversation`.
- `filter`: which sessions are meant, by agent, tags, state and age.
- `removal`: `delete`, `prune`.
"""
