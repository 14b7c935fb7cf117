"""What every SQL store shares.

- `driver`: what a database driver and one connection of it must do.
- `database`: where a statement runs: in the unit that is open, or by itself.
- `call_connection`: `context.connection`: the handler's SQL in the call's transaction.
- `call_connections`, `call_place`, `recorded_reads`: which calls have one, who waits for it, and what it has read.
- `store`: `SqlStore`: every statement on effects, sessions and commit records.
- `rows`: values to columns and back; what a damaged row says.
- `tables`: the tables and their version.
"""
