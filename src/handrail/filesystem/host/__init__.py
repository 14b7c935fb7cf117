"""The filesystem over a folder on disk.

- `filesystem`: `HostFilesystem`: locks, turns and the protocol.
- `operations`: reading, walking and changing a tree: what each operation refuses, and its steps.
- `changes`: a call's changes: before-image or whole tree first, commit, rollback, in doubt.
- `journal`: the journal of one transaction: one file as it was; format, append, damage.
- `recovery`: where journals are, and who owns them; restores a tree after a failure or a crash.
"""
