"""The sandbox suite: commands that run apart from the host, over files that are rolled back with their call.

- `section`: the sections, their tool, their guidance.
- `execution`: a request, and a result.
- `handler`: makes a program of a request, and a result of its end.
- `sandbox`: the sandbox of one run, which starts with its first command.
- `limits`: what a sandbox may use.
- `git_guard`: that a command makes no `.git`.
- `workspace_watch`: what is in the workspace while a command runs.
- `engine`: what a sandbox is made by.
- `podman`, `containers`: a container of Podman, and those that dead processes have left.
- `bubblewrap`, `cgroups`: a process below bubblewrap, and its control group.
"""
