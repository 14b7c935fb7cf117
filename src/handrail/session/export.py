"""A session as JSON for people: to look at, to keep, to start from again.

::

    {"format": "handrail.session/1", "session_id": "...", "tags": {...},
     "state": {"module:Class": [item, ...], ...}, "log": {"module:Class": [item, ...], ...}}

A type is named by its module and its qualified name. Reading knows only the types that it is given: nothing is
imported, so that untrusted data reaches no code that the reader did not name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import from_json

from handrail.errors import HandrailError, ParseError, SessionUseError, SnapshotError
from handrail.errors.developer import check_argument
from handrail.serde import codec
from handrail.session.persistence.stored_types import StoredType, stored_type
from handrail.session.slices import Items


@dataclass(frozen=True, slots=True)
class _File:
    """The JSON; its fields are the keys."""

    format: Literal["handrail.session/1"]
    session_id: str
    tags: dict[str, str]
    state: dict[str, list[dict[str, Any]]]
    log: dict[str, list[dict[str, Any]]]


def dump_session_json(session_id: str, tags: Mapping[str, str], state: Items, log: Items) -> str:
    """The JSON of what is saved of a session: its id, its tags, the items of its STATE slices and of its LOG slices.

    Raises:
        SnapshotError: something cannot be said in JSON; the message names the slice and the item.
    """
    # Called for its error: two types of one name would overwrite each other below.
    _by_name((*state, *log))
    file = _File("handrail.session/1", session_id, dict(tags), _dumped(state), _dumped(log))
    return codec(_File).dump_json(file).decode()


def load_session_json(data: str | bytes, *, types: Iterable[type[Any]]) -> tuple[str, dict[str, str], Items, Items]:
    """What `dump_session_json` wrote: the same four.

    Args:
        data: the JSON.
        types: the classes that the slices may be of.

    Raises:
        SnapshotError: the data is not a saved session or is cut short, names a type that is not among `types`, or holds
            an item that does not fit its type.
        InvalidArgumentError: `data` is not text, or `types` is one class.
    """
    check_argument("Session.from_json", "data", data, (str, bytes), "the text that Session.to_json returned")
    check_argument("Session.from_json", "types", types, Iterable, "the classes of the slices: types=[Order]")
    known = _by_name(types)
    try:
        file = codec(_File).parse_json(data)
    except ParseError as error:
        msg = f"this is not a saved session, or not the whole of one; pass what Session.to_json returned. {error}"
        raise SnapshotError(msg) from error
    return (file.session_id, file.tags, _parsed(file.state, known), _parsed(file.log, known))


def _dumped(slices: Items) -> dict[str, list[Any]]:
    # A secret of the session itself: what is read back makes another one when it needs one.
    shown = {kind: items for kind, items in slices.items() if not getattr(kind, "is_not_exported", False)}
    return {
        _name(kind): list(_each(kind, items, "saved", lambda stored, item: from_json(stored.dump_item(item))))
        for kind, items in shown.items()
    }


def _parsed(slices: Mapping[str, list[dict[str, Any]]], known: Mapping[str, type[Any]]) -> Items:
    if unknown := sorted(name for name in slices if name not in known):
        raise SnapshotError(
            f"the saved session has slices of {', '.join(unknown)}, which no given type is called; pass the classes: "
            "Session.from_json(data, types=(TheClass, ...))"
        )
    return {
        known[name]: tuple(
            _each(known[name], items, "read", lambda stored, item: stored.load_item(item, stored.version))
        )
        for name, items in slices.items()
    }


def _each(kind: type[Any], items: Iterable[Any], done: str, convert: Callable[[StoredType, Any], Any]) -> Iterator[Any]:
    """The items in the other form; `done` is what cannot be done with the slice where one does not fit."""
    try:
        stored = stored_type(kind)
    except SessionUseError as error:
        raise SnapshotError(f"slice {_name(kind)} has no form in JSON: {error.__cause__ or error}") from error
    for place, item in enumerate(items):
        try:
            yield convert(stored, item)
        except (HandrailError, ValueError) as error:
            raise SnapshotError(f"slice {_name(kind)} cannot be {done}: item {place}: {error}") from error


def _by_name(kinds: Iterable[type[Any]]) -> dict[str, type[Any]]:
    """The types by the names under which they are saved.

    Raises:
        SnapshotError: two types have one name.
    """
    found: dict[str, type[Any]] = {}
    for kind in kinds:
        if found.setdefault(_name(kind), kind) is not kind:
            msg = f"two types are called {_name(kind)}, so a saved session could not distinguish them; rename one"
            raise SnapshotError(msg)
    return found


def _name(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
