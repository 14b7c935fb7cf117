"""The filesystem over a folder on disk.

- `filesystem`: `HostFilesystem`: locks, turns, and which part does what.
- `operations`: reading, walking and changing a tree: what each operation refuses, and its steps.
- `changes`: a call's changes: before-image first, commit, undo, in doubt.
- `recovery`: opening after a crash: undo or drop each journal.
"""
