"""`handrail sessions`.

- `show`: `list`, `show`, `fork`.
- `conversation`: the conversation that `show` prints.
- `filter`: which sessions are meant, by agent, tags, state and age.
- `removal`: `delete`, `prune`.
"""
