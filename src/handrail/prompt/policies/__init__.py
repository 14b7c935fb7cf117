"""The built-in policies and the policy protocol.

- `policy`: the policy protocol, its decision, and the request to an approver.
- `read_before_write`: a file must be read before it is overwritten.
- `sequential_dependency`: one tool only after others have succeeded.
"""
