"""`handrail run`, `check`, `new`.

- `commands`: the three commands, without the extra.
- `options`: what `run` and `check` take.
- `run`: `run`: input, model, session, the run to its end.
- `check`: `check`: all that is known without a model.
- `new`: `new`: the files of a new agent.
- `models`: which model runs an agent.
- `store`: where the session of a run is stored.
- `progress`: a run shown as lines or as JSON.
- `problems`: what is wrong with an agent or its run, in words.
- `questions`: asking a person on a terminal.
"""
