"""Changes of nested data that are the same on plain dicts and lists and on `Records`, and calls that make them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from handrail.serde.json_schema import is_object
from handrail.transaction import Snapshotable, Transaction
from handrail.turns import draw_ticket, turn_of

DATA: Mapping[str, Any] = {
    "a": {"status": "pending", "items": [{"name": "mug", "n": 1}, {"name": "pen", "n": 2}]},
    "b": {"tags": ["x", "y"], "more": {"deep": {"deeper": [1, [2, 3]]}}},
    "c": 3,
}


@contextmanager
def call(
    *participants: Snapshotable[Any], writes: bool = True, parent: Transaction | None = None, tool: str = "edit"
) -> Generator[Transaction]:
    """A call that holds the turns of its participants; to be committed inside."""
    turns = tuple(turn_of(participant) for participant in participants)
    if parent is not None:
        turns = (parent.inner_turn,)
    ticket = draw_ticket(turns, exclusive=writes, inside=None if parent is None else parent.ticket)
    try:
        assert ticket.waiter is None
        with Transaction(tool, ticket=ticket, writes=writes, parent=parent) as transaction:
            yield transaction
    finally:
        ticket.release()


def place_in(data: Any, picks: list[int]) -> Any:
    """A dict or list in the data, found by numbers: each picks a part that is a dict or list, while there is one."""
    place = data
    for pick in picks:
        held: Iterable[Any] = place.values() if is_object(place) else place
        parts: list[Any] = [part for part in held if isinstance(part, dict | list)]
        if not parts:
            break
        place = parts[pick % len(parts)]
    return place


def _key(data: dict[str, Any], pick: int) -> str:
    keys = list(data)
    return keys[pick % len(keys)] if keys else "none"


def _set_or(data: dict[str, Any], pick: int) -> None:
    data |= {"merged": pick}


def _set_default(data: dict[str, Any], pick: int) -> None:
    found = data.setdefault(f"default{pick % 2}", [])
    if hasattr(found, "append"):
        found.append({"n": pick})


def _move(data: dict[str, Any], pick: int) -> None:
    if data:
        value = data.pop(_key(data, pick))
        data["moved"] = copy.deepcopy(value)


def _swap(data: dict[str, Any], pick: int) -> None:
    """Remove a key and set it again, which moves it to the end."""
    if data:
        key = _key(data, pick)
        data[key] = copy.deepcopy(data.pop(key))


def _replace_slice(data: list[Any], pick: int) -> None:
    data[pick % 2 : 2] = [part for part in data[pick % 2 : 2] if part] + [{"new": [pick]}]


def _delete_slice(data: list[Any], pick: int) -> None:
    del data[: pick % 3]


def _extend(data: list[Any], pick: int) -> None:
    data += [pick, [pick]]


def _double(data: list[Any], pick: int) -> None:
    if len(data) < 4:
        data *= pick % 3


def _set_item(data: list[Any], pick: int) -> None:
    if data:
        data[pick % len(data)] = {"set": pick}


def _pop_item(data: list[Any], pick: int) -> None:
    if data:
        data.pop(pick % len(data))


def _remove(data: list[Any], pick: int) -> None:
    if data:
        data.remove(data[pick % len(data)])


OF_DICT: tuple[Callable[[dict[str, Any], int], object], ...] = (
    lambda data, pick: data.update({_key(data, pick): pick}),
    lambda data, pick: data.update(new={"list": [pick], "dict": {}}, other=pick),
    lambda data, pick: data.__setitem__(f"key{pick}", {"n": pick}),
    lambda data, pick: data.pop(_key(data, pick), None),
    lambda data, _pick: data.popitem() if data else None,
    lambda data, pick: data.clear() if pick % 2 else None,
    _set_or,
    _set_default,
    _move,
    _swap,
)

OF_LIST: tuple[Callable[[list[Any], int], object], ...] = (
    lambda data, pick: data.append({"n": pick}),
    lambda data, pick: data.insert(pick % 3, pick),
    lambda data, pick: data.sort(key=repr, reverse=pick % 2 == 0),
    lambda data, _pick: data.reverse(),
    lambda data, _pick: data.clear(),
    _replace_slice,
    _delete_slice,
    _extend,
    _double,
    _set_item,
    _pop_item,
    _remove,
)


def edit(data: Any, picks: list[int], way: int) -> None:
    """Change something in the data; the numbers say what and how."""
    place = place_in(data, picks)
    ways: tuple[Callable[[Any, int], object], ...] = OF_DICT if isinstance(place, dict) else OF_LIST
    ways[way % len(ways)](place, sum(picks) + way)
