"""Taint: sessions that have read untrusted content, and the calls that they may make after that.

A tool, a toolset or a section is marked `untrusted` where what it returns was written by a third party: a web page, a
mail, a file that was received. Once a handler of such a tool has ended, its session is tainted, and stays so.
"""

from typing import TYPE_CHECKING

from handrail.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from handrail.taint.policy import Sanitized, TaintPolicy
    from handrail.taint.state import Provenance, Tainted, list_taints, taint_by_answer
else:
    _LATE = {"policy": "Sanitized TaintPolicy", "state": "Provenance Tainted taint_by_answer list_taints"}
    __getattr__ = lazy_exports(__name__, _LATE)

__all__ = ["Provenance", "Sanitized", "TaintPolicy", "Tainted", "list_taints", "taint_by_answer"]
