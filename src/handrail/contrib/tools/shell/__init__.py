"""The shell suite.

- `section`: the section, its tool, its guidance.
- `rules`: what may run, and ready rules for programs that read.
- `presets`: ready rules for programs that fix and check.
- `path_guard`: files that programs may not access.
- `handler`: makes a program of a request, and a result of its end.
- `process`: one run of a program, from its start to the end of all its processes.
- `live_output`: what a program writes while it runs, for subscribers.
"""
