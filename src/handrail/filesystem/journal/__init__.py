"""The journal: order of writes and fsyncs, and why a crash is undone.

- `before_images`: one file as it was: taking it, sharing it, sweeping it.
- `journal_file`: the journal of one transaction: format, append, damage.
- `folder`: where journals are, which process owns them, which calls were committed.
- `restore`: putting a tree back to its before-images, whatever it is now.
"""
