"""The shell suite.

- `section`: the section, its tool with its handler, its guidance.
- `rules`: the commands that may run, what programs may not access, and ready rules.
- `process`: one run of a program, from its start to the end of all its processes, and its output meanwhile.
"""
