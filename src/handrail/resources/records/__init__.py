"""Records: data of a program's own that takes part in the transactions of calls, without code of its own.

`Records` is what a program makes; `containers` has the dicts and lists that it consists of, and `changes` what rolls
them back.
"""

from __future__ import annotations

from handrail.resources.records.containers import RecordDict, RecordList
from handrail.resources.records.records import Records

__all__ = ["RecordDict", "RecordList", "Records"]
