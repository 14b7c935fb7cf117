"""The file suite.

- `section`: the section, its tools with examples, its guidance.
- `handlers`: the handlers.
- `files`: parameters and results of the file tools.
- `search`: glob and grep: parameters, results, the search.
- `text`: lines, excerpts, exact replacement: pure functions on text.
"""
