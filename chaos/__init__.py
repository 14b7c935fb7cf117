"""Processes that are killed at random over one store, and a count of what became of each call. Run by `make chaos`."""
