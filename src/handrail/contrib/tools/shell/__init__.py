"""The shell suite.

- `section`: the section, its tool, its guidance.
- `rules`: what may run, and ready rules to start from.
- `path_guard`: files that programs may not access.
- `handler`: makes a program of a request, and a result of its end.
- `process`: one process group, from its start to the end of all its processes.
"""
