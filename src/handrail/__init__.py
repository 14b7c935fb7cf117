"""Handrail: a tool runtime for LLM agents in which every tool call is a transaction.

A call is typed and validated, allowed by policy, isolated, undone when it fails, never repeated by accident, and
recorded whatever happens. Read on in `handrail.runtime.invoke`, which carries a call out from top to bottom.

Names are imported from the packages: `handrail.prompt`, `handrail.runtime`, `handrail.adapters.tool_executor`, ...
"""

from __future__ import annotations

__version__ = "0.1.0"
"""The version of the package; what builds it reads it here."""
