"""The shell suite.

- `section`: the section, its tool with its handler, its guidance.
- `rules`: what may run, and what programs may not access.
- `presets`: ready rules for programs that read, fix and check.
- `process`: one run of a program, from its start to the end of all its processes, and what it writes meanwhile.
"""
