"""Handrail: a tool runtime for LLM agents in which every tool call is a transaction.

A call is typed and validated, allowed by policy, isolated, undone when it fails, never repeated by accident, and
recorded whatever happens. Read on in `handrail.runtime.invoke`, which carries a call out from top to bottom.

Names are imported from the packages, `handrail.prompt`, `handrail.runtime`, `handrail.adapters.tool_executor`, ...; and
what the shortest way in needs, from here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handrail.lazy_exports import lazy_exports

__all__ = ["ToolExecutor", "store", "tool"]

__version__ = "0.0.0.dev0"
"""The version of the package: that of its tag in a release, and this one in a checkout."""

if TYPE_CHECKING:
    from handrail import store
    from handrail.adapters.tool_executor import ToolExecutor
    from handrail.prompt import tool
else:
    # Every module of Handrail imports this one first, so that nothing is imported here before it is asked for.
    __getattr__ = lazy_exports(__name__, {"adapters.tool_executor": "ToolExecutor", "prompt": "tool"})
