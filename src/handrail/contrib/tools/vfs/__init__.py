"""The file suite.

- `section`: the section, its tools with examples and handlers, its guidance.
- `search`: list, glob and grep: parameters, results, the search.
- `text`: the tools for one file: parameters, results, pure functions on text.
"""
