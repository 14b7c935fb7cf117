"""The filesystem over a folder on disk.

- `filesystem`: `HostFilesystem`: locks, turns and the protocol.
- `operations`: reading, walking and changing a tree: what each operation refuses, and its steps.
- `changes`: a call's changes: before-image or whole tree first, commit, rollback, in doubt.
- `journal`: the journal of one transaction: one file as it was; format, append, damage.
- `journal_folder`: where journals are, which process owns them, which calls are committed, which programs run.
- `recovery`: restores a tree, whatever its present state; at the opening after a crash, each journal.
"""
