"""The Python suite: one tool that evaluates small programs of a model.

- `section`: the section, its tool, its guidance.
- `evaluation`: the request and its result.
- `engines`: the two interpreters, and whether they are installed.
- `handler`: makes an evaluation of a request, and a result of its end.
- `files`: the functions for files that code may call, carried out in the call.
- `workers`: the processes that evaluate code, one for each evaluation that runs at a time; they are kept.

What runs in those processes is `handrail.python_worker`.
"""
