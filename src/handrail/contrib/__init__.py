"""Suites of tools that ship with Handrail; nothing in the package depends on them."""
