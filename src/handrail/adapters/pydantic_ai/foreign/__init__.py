"""Tools that are not Handrail's.

- `calls`: one such call, and the treatment of a lost answer.
- `effects`: its effect, from metadata or MCP hints.
- `arguments`: the arguments of functions, read strictly by their schema.
- `values`: its values as JSON.
"""
