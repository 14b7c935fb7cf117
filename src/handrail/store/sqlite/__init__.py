"""The store in a file.

- `store`: `SqliteStore`, its driver and its connections.
- `file`: the file: opening, WAL, identity, its errors.
- `locks`: session locks between processes, by locked files.
- `process_locks`: the processes that claim effects in a file: each holds the lock of one file until it ends.
"""
