"""Workers of the command `handrail worker` that are killed, stopped, and cut off from their store and queue."""
