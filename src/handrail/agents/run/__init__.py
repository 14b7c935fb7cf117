"""One run, from input to answer.

- `run`: the run: its toolset, its loop, nested agents, inspection.
- `calls`: the calls of a run, each described once, and asked about before any of a reply runs.
- `executors`: the executors of a run, over what it binds for its tools.
- `run_group`: what nested runs share: gate, ledger, folders, listener; and the sessions of called agents.
- `agent_texts`: overrides of the texts of an agent, and the summaries of its closed toolsets.
- `options`: what a program, or `handrail run`, chooses for a run.
- `events`: the events of a run.
"""
