"""`handrail approvals`.

- `questions`: the questions of a store, of agents and of programs, those that a command means, and their answers.
- `commands`: `list`, `show`, `answer`.
"""
