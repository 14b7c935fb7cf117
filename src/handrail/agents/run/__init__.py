"""One run, from input to answer.

- `run`: the run: its toolset, its loop, nested agents, inspection.
- `calls`: the calls of a run, each described once, and asked about before any of a reply runs.
- `executors`: the executors of a run, and its steps in PydanticAI's loop.
- `run_group`: gate, ledger, folders and listener of nested runs, and the sessions of called agents.
- `interface`: the options and the events of a run.
"""
