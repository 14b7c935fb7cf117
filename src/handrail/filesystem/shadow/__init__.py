"""Whole-tree snapshots, for tools that run programs.

- `repository`: snapshots of a tree, and the plan that restores one.
- `differences`: what two trees differ in, and how that is taken back in a third.
- `tree`: the state of a tree as git trees, without what git ignores, and changes to it.
- `objects`: the files in which contents and folders are stored, each under its digest.
"""
