"""Whole-tree snapshots, for tools that run programs.

- `repository`: snapshots of a tree.
- `tree`: the state of a tree as git trees, without what git ignores.
- `checkout`: the changes on disk that restore a snapshot.
- `git`: the git command as an object store, isolated from all configuration.
"""
