"""Views of a session: bound to a call, as `context.session`, and the sessions above it, which may not be open.

A view is a session: it has the methods and attributes of the session, and is equal to it. Each method runs
in the session itself, with the call of the view as the current one (`handrail.transaction.in_call`), in any thread or
task. The slices and the conversation of a view write through the view. Every session that is reached from a view is a
view of the same call: its parent, a child, a fork.

| through a view | while the call is open | after its end |
|---|---|---|
| a write to a STATE slice, `dispatch`, `restore` | belongs to the call | `TransactionClosedError` |
| an item for a LOG, a message of the conversation | is appended | is appended |
| reading, `snapshot` | sees the changes of the call | sees what has been committed |
| `fork` of a session in memory | has what the call sees, and is a view | has what has been committed |
| `child`, `child_async` | is made, and is a view | `TransactionClosedError` |
| a call on a child, by `ToolExecutor` | is nested; in a `concurrent` call independent | `TransactionClosedError` |
| rules, subscribers, `close`, `close_async` | as of the session | as of the session |

Views are made only where they are asked for, so that the session itself costs nothing for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import iscoroutinefunction
from operator import attrgetter
from types import FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from handrail.session.reducers import Slice
from handrail.session.session import Session
from handrail.transaction import Transaction, current, in_call

if TYPE_CHECKING:
    from handrail.session.persistence.protocol import SessionRow, SessionStore


T = TypeVar("T")


class BoundSession(Session):
    """A session, bound to a call; `bound_session` makes it."""

    def __init__(self, session: Session, call: Transaction) -> None:
        # Past `__setattr__`. The attributes of a session are not here: `__getattr__` finds them in the session.
        own = vars(self)
        own["unbound"], own["bound_to"], own["_slices"] = session, call, {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a session
        if "unbound" not in vars(self):  # as while it is being copied
            raise AttributeError(name)
        value = getattr(self.unbound, name)
        return bound_session(value, self.bound_to) if isinstance(value, Session) else value  # the parent

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.unbound, name, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and other.unbound is self.unbound

    def __hash__(self) -> int:
        return hash(self.unbound)

    def __getitem__(self, kind: type[T]) -> Slice[T]:
        slices = vars(self)["_slices"]
        if kind not in slices:
            slices[kind] = BoundSlice(self.unbound[kind], self.bound_to)
        bound: Slice[T] = slices[kind]
        return bound


class BoundSlice(Slice[Any]):
    """A slice of a session, bound to a call."""

    __slots__ = ("bound_to", "unbound")

    def __init__(self, unbound: Slice[Any], call: Transaction) -> None:
        self.unbound: Slice[Any] = unbound
        self.bound_to: Transaction = call


def _forward_method(owner: type[object], name: str) -> Callable[..., Any]:
    @wraps(getattr(owner, name))
    def run(self: BoundSession | BoundSlice, *args: object, **kwargs: object) -> object:
        method, call = getattr(self.unbound, name), self.bound_to
        if current() is call:  # in the handler itself, which is nearly always so
            result = method(*args, **kwargs)
        else:
            with in_call(call):
                result = method(*args, **kwargs)
        return bound_session(result, call) if isinstance(result, Session) else result  # a child, a fork

    return run


def _forward_property(owner: type[object], name: str) -> property:
    def read(self: BoundSession | BoundSlice) -> object:
        with in_call(self.bound_to):
            return getattr(self.unbound, name)

    return property(read, doc=getattr(owner, name).__doc__)


def _forward(owner: type[object], view: type[object]) -> None:
    for name, member in list(vars(owner).items()):
        if name in vars(view) or (name.startswith("__") and name != "__repr__"):
            continue
        if isinstance(member, property):
            setattr(view, name, _forward_property(owner, name))
        elif isinstance(member, FunctionType) and not iscoroutinefunction(member):
            setattr(view, name, _forward_method(owner, name))
        elif isinstance(member, MemberDescriptorType):
            setattr(view, name, property(attrgetter(f"unbound.{name}")))


_forward(Session, BoundSession)
_forward(Slice, BoundSlice)


def bound_session(session: Session, call: Transaction) -> BoundSession:
    """The session for the handler of a call. A view is bound anew."""
    return BoundSession(session.unbound, call)


class UnopenedSession(NamedTuple):
    """A session in its store, which another process may have open."""

    store: SessionStore
    row: SessionRow

    def log(self, kind: type[T]) -> tuple[T, ...]:
        """The items of a LOG, the oldest first; raises `StoreError`."""
        from handrail.session.persistence.loading import known_items  # noqa: PLC0415

        value = known_items(self.store, self.row, lambda cls: cls is kind)
        return tuple(cast("list[T]", value.get(kind, [])))


def reads_above(session: Session) -> bool:
    """Returns whether `sessions_above` may read the store; most sessions have no parent, or one in this process."""
    last = session.unbound
    while last.parent is not None:
        last = last.parent
    return last.recorder is not None and last.recorder.session_lock.row.parent is not None


def sessions_above(session: Session) -> Iterator[Session | UnopenedSession]:
    """Iterates over the sessions that a session works for, the nearest first; one that was deleted ends the list.

    A parent that this process has made the session for is that object; any other one is read from the store.

    Raises:
        StoreError: the store cannot be read.
    """
    last = session.unbound
    while last.parent is not None:
        last = last.parent
        yield last
    recorder = last.recorder
    if recorder is None or not reads_above(last):
        return
    store, ids, above = recorder.store, {last.session_id}, recorder.session_lock.row.parent
    # A session may have been deleted, and its id used again for one that is made for its former child.
    while above is not None and above not in ids and (row := store.find(above)) is not None:
        ids.add(above)
        yield UnopenedSession(store, row)
        above = row.parent
