"""The table by failure: what is left when tool calls go wrong, with Handrail and with what people would choose."""
