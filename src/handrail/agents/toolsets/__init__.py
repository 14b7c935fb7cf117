"""Toolsets of a run: those that are made when it begins, and all of them together, each under its name."""
