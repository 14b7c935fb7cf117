"""The store in a file: `store` has `SqliteStore`, its driver, connections and file; `owner` has its lock."""
