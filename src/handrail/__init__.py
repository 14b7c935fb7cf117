"""Handrail: a tool runtime for LLM agents in which every tool call is a transaction.

A call is typed and validated, allowed by policy, isolated, undone when it fails, never repeated by accident, and
recorded whatever happens. Read on in `handrail.runtime.invoke`, which carries a call out from top to bottom.

Names are imported from the packages, `handrail.prompt`, `handrail.runtime`, `handrail.adapters.tool_executor`, ...; the
decorator `handrail.tool` from here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["tool"]

__version__ = "0.1.0"
"""The version of the package; what builds it reads it here."""

if TYPE_CHECKING:
    from handrail.prompt import tool
else:

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name is of
        # Every module of Handrail imports this one first, so that nothing is imported here before it is asked for.
        if name == "tool":
            from handrail.prompt import tool  # noqa: PLC0415 - see above, and decision 39

            return tool
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
