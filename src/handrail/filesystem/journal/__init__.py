"""The journal on disk, from which the changes of a call are undone after a crash.

- `before_images`: one file as it was: taking it, sharing it, sweeping it.
- `journal_file`: the journal of one transaction: format, append, damage.
- `folder`: where journals are, which process owns them, which calls were committed.
- `restore`: putting a tree back to its before-images, whatever it is now.
"""
