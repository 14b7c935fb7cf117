"""Undo that is killed by SIGKILL, and asked again until it is complete."""
