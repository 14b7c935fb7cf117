"""Graphs of LangGraph that are killed while their node runs calls."""
