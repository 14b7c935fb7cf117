"""Taint: which sessions have read untrusted content, and what their calls may do after that.

A tool, a toolset or a section is marked `untrusted` where what it returns was written by a third party: a web page, a
mail, a file that was received. Once a handler of such a tool has ended, its session is tainted, and stays so.

- `state`: the record of what a session has read, and from where.
- `delimiter`: how untrusted content is marked in a message, so that it cannot end the mark.
- `sanitized`: values that a tool of the program has extracted, which may be used without asking.
- `policy`: the policy that asks about the calls of a tainted session, or denies them.
"""

from handrail.taint.policy import TaintPolicy
from handrail.taint.sanitized import Sanitized
from handrail.taint.state import Provenance, Tainted, taint_by_answer, taints_of

__all__ = ["Provenance", "Sanitized", "TaintPolicy", "Tainted", "taint_by_answer", "taints_of"]
