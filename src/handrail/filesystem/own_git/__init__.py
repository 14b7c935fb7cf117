"""The root's own `.git`, which is read and never restored.

- `state`: HEAD, references, index and unfinished operations at one moment.
- `index`: the entries of an index file.
- `changes`: how two states differ, and the commands that take the difference back.
"""
