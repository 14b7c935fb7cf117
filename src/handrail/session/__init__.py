"""Sessions: events in, slices out."""

from handrail.session.calls import CallRef, OpenCall
from handrail.session.changes import Append, Change, Keep, Replace
from handrail.session.persistence.protocol import Connection, SessionStore
from handrail.session.persistence.stored_types import stored_as
from handrail.session.reducers import Reducer, append_all, reducer, replace_latest, upsert_by
from handrail.session.session import Session
from handrail.session.slice import Slice
from handrail.session.slices import SessionSnapshot, SlicePolicy, SliceView

__all__ = [
    "Append",
    "CallRef",
    "Change",
    "Connection",
    "Keep",
    "OpenCall",
    "Reducer",
    "Replace",
    "Session",
    "SessionSnapshot",
    "SessionStore",
    "Slice",
    "SlicePolicy",
    "SliceView",
    "append_all",
    "reducer",
    "replace_latest",
    "stored_as",
    "upsert_by",
]
