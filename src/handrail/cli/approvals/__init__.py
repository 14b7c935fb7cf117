"""`handrail approvals`.

- `questions`: the questions of a store, those that a command means, and their answers.
- `agent_questions`: the questions of agents; needs the extra `agents`.
- `show`: `list`, `show`.
- `answer`: `answer`.
"""
