"""One run, from input to answer.

- `run`: the run: its toolset, its loop, nested agents, inspection.
- `calls`: the calls of a run, each described once, with the questions of its policies before it is made.
- `executors`: the executors of a run, over what it binds for its tools.
- `capability`: what Handrail does at the steps of PydanticAI's loop.
- `run_group`: what nested runs share: gate, ledger, folders, listener; and the sessions of called agents.
- `inspection`: what an agent would be offered, for people.
- `agent_texts`: overrides of the texts of an agent, and the summaries of its closed toolsets.
- `options`: what a program, or `handrail run`, chooses for a run.
- `events`: the events of a run.
"""
