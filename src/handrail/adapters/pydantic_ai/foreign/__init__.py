"""Tools that are not Handrail's.

- `calls`: one such call, and what a lost answer means.
- `effects`: its effect, from metadata or MCP hints.
- `arguments`: the arguments of plain functions, read as their schema says.
- `values`: its values as JSON.
"""
