"""The store in a file.

- `store`: `SqliteStore`, its driver and its connections.
- `file`: the file: opening, WAL, its errors, and the database and its log compared with those that were opened.
- `locks`: session locks between processes, each a byte or a file.
- `process_locks`: the processes that claim effects in a file: each holds the lock of one file until it ends.
"""
