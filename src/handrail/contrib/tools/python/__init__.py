"""The Python suite: one tool that evaluates small programs of a model.

- `section`: the section, its tool with its handler, its guidance.
- `evaluation`: the request, its limits, and its result.
- `files`: the functions for files that code may call, carried out in the call.
- `monty`: evaluates code; it is imported with the first evaluation, because it needs the extra `python`.
"""
