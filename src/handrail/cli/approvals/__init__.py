"""`handrail approvals`.

- `stored_question`: a question as a store holds it, and its answer.
- `agent_questions`: the questions of agents; needs the extra `agents`.
- `questions`: finds the questions of a store, and those that a command means.
- `show`: `list`, `show`.
- `answer`: `answer`.
"""
