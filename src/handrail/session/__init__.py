"""Sessions: events in, slices out."""

from handrail.session.changes import Append, Change, Keep, Replace
from handrail.session.reducers import Reducer, append_all, reducer, replace_latest, upsert_by
from handrail.session.session import Session, Slice
from handrail.session.slices import SessionSnapshot, SlicePolicy, SliceView

__all__ = [
    "Append",
    "Change",
    "Keep",
    "Reducer",
    "Replace",
    "Session",
    "SessionSnapshot",
    "Slice",
    "SlicePolicy",
    "SliceView",
    "append_all",
    "reducer",
    "replace_latest",
    "upsert_by",
]
