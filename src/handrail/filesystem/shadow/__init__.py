"""Whole-tree snapshots, for tools that run programs.

- `repository`: snapshots of a tree.
- `whole_tree`: the snapshot of a call.
- `tree`: the state of a tree as git trees.
- `ignored`: which files git ignores.
- `scope`: what a snapshot leaves out.
- `watch`: what is not restored, and how it has changed.
- `watch_record`: the same on disk, for the opening after a kill.
- `index_file`: the state of a tree on disk, for the next process.
- `columns`: how folders are stored in both.
- `checkout`: the changes on disk that restore a snapshot.
- `git`: the git command as an object store, isolated from all configuration.
"""
