"""Stored sessions: entries, checkpoints, one writer.

- `protocol`: the port of a store, and which entries hold the items of a slice.
- `recorder`: what a call writes: entries from the difference of slices, and how far the store has come.
- `loading`: opening a stored session: what is read at once and what on demand.
- `stored_types`: names, versions and upgrades of stored types, and a session as JSON.
"""
