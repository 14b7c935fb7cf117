"""The sandbox suite: commands that run apart from the host, over files that are rolled back with their call.

- `section`: the sections, their tool with its handler, their guidance.
- `engine`: the protocol and limits of sandboxes, the sandbox of one run, and sandboxes of bubblewrap.
- `podman`: sandboxes of Podman.
"""
