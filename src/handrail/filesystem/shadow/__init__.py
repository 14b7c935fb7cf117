"""Whole-tree snapshots, for tools that run programs.

- `repository`: snapshots of a tree, by hand and for a call.
- `tree`: the state of a tree as git trees.
- `checkout`: the changes on disk that restore a snapshot.
- `git`: the git command as an object store, isolated from all configuration.
"""
