"""The file suite.

- `section`: the section, its tools with examples and handlers, its guidance.
- `search`: list, glob and grep: parameters, results, the search.
- `text`: reading, writing and editing: parameters, results, pure functions on text.
"""
