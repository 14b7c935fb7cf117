"""The parts that every SQL store shares: drivers, tables and statements, units of work, and `context.connection`."""
