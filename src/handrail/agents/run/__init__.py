"""One run, from input to answer.

- `run`: the run: its toolset, its loop, nested agents, inspection.
- `executors`: executors of a run; how a call is described to the gate and to people.
- `foreseen_calls`: a call before it is made, with the questions of its policies.
- `capability`: what Handrail does at the steps of PydanticAI's loop.
- `run_group`: what nested runs share: gate, ledger, folders, listener; and the sessions of called agents.
- `folder_paths`: what toolsets of a run keep back from whatever else reaches their files.
- `options`: what a program chooses for a run.
- `events`: the events of a run.
"""
