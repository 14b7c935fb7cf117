"""The journal on disk, from which the changes of a call are rolled back after a crash.

- `before_images`: one file as it was: saving, sharing, removing.
- `journal_file`: the journal of one transaction: format, append, damage.
- `folder`: where journals are, which process owns them, which calls are committed.
- `recorded_programs`: which programs run over the tree, so that they can be ended.
- `restore`: restores a tree from its before-images, whatever its present state.
"""
