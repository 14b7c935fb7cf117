"""Whole-tree snapshots, for tools that run programs.

- `repository`: a snapshot of a tree, and keeping one for a call.
- `tree`: the state of a tree as git trees.
- `checkout`: what must change on disk to match a snapshot, and doing it.
- `git`: the git command as an object store, isolated from all configuration.
"""
