"""Sessions: events in, slices out."""

from typing import TYPE_CHECKING

from handrail.lazy_exports import lazy_exports
from handrail.session.calls import CallRef, OpenCall
from handrail.session.persistence.stored_types import stored_as
from handrail.session.reducers import Slice, append_all, reducer, replace_latest, upsert_by
from handrail.session.session import Session
from handrail.session.slices import Append, Change, Reducer, Replace, SessionSnapshot, SlicePolicy, SliceView, Unchanged

if TYPE_CHECKING:
    from handrail.session.persistence.protocol import DatabaseConnection, SessionStore
else:
    __getattr__ = lazy_exports(__name__, {"persistence.protocol": "DatabaseConnection SessionStore"})

__all__ = [
    "Append",
    "CallRef",
    "Change",
    "DatabaseConnection",
    "OpenCall",
    "Reducer",
    "Replace",
    "Session",
    "SessionSnapshot",
    "SessionStore",
    "Slice",
    "SlicePolicy",
    "SliceView",
    "Unchanged",
    "append_all",
    "reducer",
    "replace_latest",
    "stored_as",
    "upsert_by",
]
