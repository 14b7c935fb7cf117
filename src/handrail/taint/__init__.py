"""Taint: which sessions have read untrusted content, and what their calls may do after that.

A tool, a toolset or a section is marked `untrusted` where what it returns was written by a third party: a web page, a
mail, a file that was received. Once a handler of such a tool has ended, its session is tainted, and stays so.

- `state`: the record of what a session has read, and how untrusted content is marked in a message, so that it cannot
  end the mark.
- `policy`: the policy that asks about the calls of a tainted session, or denies them, and the values that a tool of the
  program has extracted, which may be used without asking.
"""

from typing import TYPE_CHECKING

from handrail.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from handrail.taint.policy import Sanitized, TaintPolicy
    from handrail.taint.state import Provenance, Tainted, taint_by_answer, taints_of
else:
    _LATE = {"policy": "Sanitized TaintPolicy", "state": "Provenance Tainted taint_by_answer taints_of"}
    __getattr__ = lazy_exports(__name__, _LATE)

__all__ = ["Provenance", "Sanitized", "TaintPolicy", "Tainted", "taint_by_answer", "taints_of"]
