"""The store in a file.

- `store`: `SqliteStore`, its driver and its connections.
- `file`: the file: opening, WAL, its errors, and the database and its log compared with those that were opened.
- `owner`: the store as an owner of claims and sessions: the lock of a file beside the database.
"""
