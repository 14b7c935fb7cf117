"""The sandbox suite: commands that run apart from the host, over files that are rolled back with their call.

- `section`: the sections, their tool with its handler, their guidance.
- `engine`: what a sandbox is made by and may use, and the sandbox of one run.
- `podman`: a container of Podman, and those that dead processes have left.
- `bubblewrap`: a process below bubblewrap.
"""
