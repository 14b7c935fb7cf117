"""Agents by name: files that pick tools and toolsets, run and checked from Python or the command line."""
