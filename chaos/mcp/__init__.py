"""MCP under SIGKILL: clients, `handrail proxy`, `handrail serve` and servers that are killed in the middle of calls."""
