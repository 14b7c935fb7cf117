"""The filesystem over a folder on disk.

- `filesystem`: `HostFilesystem`: locks, turns and the protocol.
- `operations`: reading, walking and changing a tree: what each operation refuses, and its steps.
- `changes`: a call's changes: before-image or whole tree first, commit, rollback, in doubt.
- `recovery`: opening after a crash: roll back or discard each journal.
"""
