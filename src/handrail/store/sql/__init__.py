"""What every SQL store shares.

- `driver`: what a database driver and one connection of it must do.
- `database`: the tables, and where a statement runs: in the unit that is open, or by itself.
- `call_connection`: `context.connection`: the handler's SQL in the call's transaction.
- `call_places`: who waits for it, and for writing.
- `tables`, `statements`: the columns of the tables, values to columns and back, and the SQL.
- `units`, `committer`: how units of work are written, alone or in groups.
- `store`, `removal`: `SqlStore`: effects, sessions and commit records.
"""
