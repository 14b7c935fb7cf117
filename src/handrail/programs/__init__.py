"""Programs that calls start, and what makes them end with their call.

- `launch`: what is started, what is recorded of it, and what a running program is for its caller.
- `supervised`: a program below the guardian (Linux).
- `group`: a program that is only the leader of a process group (other systems).
- `guardian`: the guardian process, which starts programs, and ends all that they start.
- `guardian_messages`: what the processes send to each other.
- `guardian_client`: the guardian of this process, for its threads.
- `process_tree`: finds and kills processes by parent and by the variable of their call.
"""
