"""The shell suite.

- `section`: the section, its tool, its guidance.
- `rules`: what may run, and ready rules to start from.
- `path_guard`: files that programs do not get.
- `handler`: from a request to a program, from its end to a result.
- `process`: one process group, from start to the end of all it started.
"""
