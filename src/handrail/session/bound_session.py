"""The session as the handler of one call has it: `context.session`.

A view is a session: it has the class of the session, its methods and attributes, and is equal to it. Each method runs
in the session itself, with the call of the view as the current one (`handrail.transaction.in_call`), in whatever thread
or task it is called. So a write through it belongs to the call while that is open, and is refused with
`TransactionClosedError` when it has ended; a read sees what the call has written. The slices and the conversation of a
view write through the view. Every session that is reached from a view is a view of the same call: its parent, the
parent of that, a child, a fork.

| through a view | while the call is open | after its end |
|---|---|---|
| a write to a STATE slice, `dispatch`, `restore` | belongs to the call | `TransactionClosedError` |
| an item for a LOG, a message of the conversation | is appended | is appended |
| reading, `snapshot` | sees the changes of the call | sees what has been committed |
| `fork` of a session in memory | has what the call sees, and is a view | has what has been committed |
| `child`, `child_async` | is made, and is a view | `TransactionClosedError` |
| a call on a child, by `ToolExecutor` | is nested; in a `concurrent` call independent | `TransactionClosedError` |
| rules, subscribers, `close`, `close_async` | as of the session | as of the session |

Views exist only where they are asked for, so that nothing is spent on them in the session itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from operator import attrgetter
from types import FunctionType, MemberDescriptorType
from typing import Any, Final, TypeVar, cast

from handrail.errors import TransactionClosedError
from handrail.session.session import Session
from handrail.session.slices import Slice
from handrail.transaction import Transaction, current, in_call

T = TypeVar("T")

_UNFORWARDED = frozenset(
    {"__class_getitem__", "__enter__", "__exit__", "__getitem__", "__init__", "child", "fork", "unbound"}
)
"""The methods that the view has itself, and those that are made of others, as the asynchronous ones are."""


class BoundSession(Session):
    """A session, bound to a call; `bound_session` makes it."""

    def __init__(self, session: Session, call: Transaction) -> None:
        # Past `__setattr__`. The attributes of a session are not here: `__getattr__` finds them in the session.
        own = vars(self)
        own["_session"], own["_call"], own["_slices"] = session, call, {}

    @property
    def unbound(self) -> Session:
        """The session itself."""
        session: Session = vars(self)["_session"]  # set when the view was made
        return session

    @property
    def bound_to(self) -> Transaction:
        """The call that it is bound to."""
        call: Transaction = vars(self)["_call"]  # as above
        return call

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a session
        if "_session" not in vars(self):  # as while it is being copied
            raise AttributeError(name)
        found = getattr(self.unbound, name)
        return bound_session(found, self.bound_to) if isinstance(found, Session) else found  # the parent

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.unbound, name, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and other.unbound is self.unbound

    def __hash__(self) -> int:
        return hash(self.unbound)

    def __getitem__(self, kind: type[T]) -> Slice[T]:
        own = vars(self)
        access: Slice[T] | None = own["_slices"].get(kind)
        if access is None:
            own["_session"][kind]  # refuses what is not a dataclass
            access = own["_slices"][kind] = Slice(self, kind)
        return access

    def child(self, *, session_id: str | None = None, tags: Mapping[str, str] | None = None) -> Session:
        """As `Session.child`, as a view. The child itself lives longer than the call; only what it is given is undone.

        Raises:
            TransactionClosedError: the call has ended.
        """
        call = self.bound_to
        if not call.is_open():
            raise TransactionClosedError(call.tool, "make a child session")
        return bound_session(self.unbound.child(session_id=session_id, tags=tags), call)

    def fork(self, *, session_id: str | None = None, at: str | tuple[str | None, str] | None = None) -> Session:
        """As `Session.fork`, as a view."""
        call = self.bound_to
        with in_call(call):
            return bound_session(self.unbound.fork(session_id=session_id, at=at), call)


def _forwarded(name: str) -> Callable[..., Any]:
    """A method that runs that method of the session in the call."""

    @wraps(getattr(Session, name))
    def run(self: BoundSession, *args: object, **kwargs: object) -> object:
        own = vars(self)
        method, call = getattr(own["_session"], name), own["_call"]
        if current() is call:  # in the handler itself, which is nearly always so
            return method(*args, **kwargs)
        with in_call(call):
            return method(*args, **kwargs)

    return run


def _forwarded_property(name: str) -> property:
    def read(self: BoundSession) -> object:
        with in_call(self.bound_to):
            return getattr(self.unbound, name)

    return property(read, doc=getattr(Session, name).__doc__)


for _name, _member in vars(Session).items():
    if _name in _UNFORWARDED or (_name.startswith("_") and _name != "__repr__"):
        continue
    if isinstance(_member, FunctionType) and not iscoroutinefunction(_member):
        setattr(BoundSession, _name, _forwarded(_name))
    elif isinstance(_member, property):
        setattr(BoundSession, _name, _forwarded_property(_name))


def bound_session(session: Session, call: Transaction) -> BoundSession:
    """The session for the handler of a call. A view is bound anew."""
    itself = session.unbound
    kind = type(itself)
    if kind is Session:
        return BoundSession(itself, call)
    made = _CLASSES.get(kind)
    if made is None:
        # With the methods that a class of the program adds. Its first base is the view.
        attributes = _forwarded_attributes(kind)
        made = _CLASSES[kind] = cast("type[BoundSession]", type(kind.__name__, (BoundSession, kind), attributes))
    return made(itself, call)


def _forwarded_attributes(kind: type[Session]) -> dict[str, property]:
    """The data attributes of a class of the program: a view finds the default of the class without them."""
    return {
        name: property(attrgetter(f"unbound.{name}"))  # they are set by `BoundSession.__setattr__`
        for each in kind.__mro__[: kind.__mro__.index(Session)]
        for name, value in vars(each).items()
        if not name.startswith("__") and (isinstance(value, MemberDescriptorType) or not hasattr(value, "__get__"))
    }


# Of the process, as classes are: those of the views of each class of the program.
_CLASSES: Final[dict[type[Session], type[BoundSession]]] = {}


"""The classes of the views of sessions of the program's own classes."""
