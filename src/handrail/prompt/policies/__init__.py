"""The built-in policies and the contract of one's own.

- `policy`: the policy protocol, its decision, and what an approver is asked.
- `read_before_write`: no file is overwritten unseen.
- `sequential_dependency`: one tool only after others have succeeded.
"""
