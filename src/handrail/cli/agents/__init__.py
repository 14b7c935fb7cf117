"""`handrail run`, `check`, `new`.

- `commands`: the three commands, without the extra.
- `options`: the options of `run` and `check`.
- `run`: `run`: input, model, session, and the run itself.
- `check`: `check`: everything that can be checked without a model.
- `new`: `new`: the files of a new agent.
- `settings`: which model runs an agent, and where the session of a run is stored.
- `progress`: a run shown as lines or as JSON, and problems with an agent or its run.
- `questions`: asks a person on a terminal.
"""
