"""Programs that calls start, and what makes them end with their call.

- `program`: what is started and recorded, and a program that has been started.
- `process_tree`: finds and kills processes by the variable of their call, by parents, and by namespace.
"""
