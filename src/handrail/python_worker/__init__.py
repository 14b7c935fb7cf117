"""The process that evaluates Python for a model: what runs in it, and the messages between it and the agent.

- `channel`: messages over two descriptors, for both sides.
- `program`: the program of the process: it evaluates one request after the other.
- `lent`: the functions that code may call in the agent, seen from the code.
- `results`: what an evaluation returns, as JSON of bounded size.
- `monty_engine`, `asteval_engine`: the two interpreters.
- `confinement`: what the process gives up before it evaluates anything.
- `system_calls`: the numbers of system calls.

It is run as `python -I -S -c` with the paths of this package and of the interpreter. So its modules import the standard
library, each other, and one of the two interpreters.
"""
