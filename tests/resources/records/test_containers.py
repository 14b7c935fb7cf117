"""The dicts and lists of records are used as those of Python."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from enum import IntEnum, StrEnum
from functools import partial
from typing import Any, cast

import pytest
from pydantic import TypeAdapter

from handrail.errors import InvalidArgumentError
from handrail.resources import Records
from tests.resources.records.edits import DATA, edit
from tests.wording import Wording

READ_DICT: dict[str, Callable[[Any], object]] = {
    "len": len,
    "bool": bool,
    "list": list,
    "reversed": lambda data: list(reversed(data)),
    "keys": lambda data: list(data.keys()),
    "values": lambda data: list(data.values()),
    "items": lambda data: list(data.items()),
    "get": lambda data: (data.get("a"), data.get("z"), data.get("z", 1)),
    "in": lambda data: ("a" in data, "z" in data, 1 in data),
    "str": str,
    "dict": dict,
    "unpacked": lambda data: {**data},
    "or": lambda data: (data | {"z": 1}, {"z": 1} | data),
    "copy": lambda data: data.copy(),
    "copy.copy": copy.copy,
    "equal": lambda data: (data == dict(DATA), data == {}, data != dict(DATA), data != {}, data == 1),
    "json": json.dumps,
    "pydantic": TypeAdapter(dict[str, Any]).validate_python,
    "isinstance": lambda data: isinstance(data, dict),
}

READ_LIST: dict[str, Callable[[Any], object]] = {
    "len": len,
    "bool": bool,
    "list": list,
    "reversed": lambda data: list(reversed(data)),
    "item": lambda data: (data[0], data[-1], data[1:], data[::2]),
    "in": lambda data: ("x" in data, "z" in data),
    "index": lambda data: (data.index("y"), data.index("y", 1)),
    "count": lambda data: data.count("x"),
    "str": str,
    "add": lambda data: (data + ["z"], ["z"] + data, data + data),  # noqa: RUF005 - what is tested
    "times": lambda data: (data * 2, 2 * data),
    "copy": lambda data: data.copy(),
    "copy.copy": copy.copy,
    "equal": lambda data: (data == ["x", "y"], data == [], data != ["x", "y"], data == data.copy(), data == 1),
    "less": lambda data: (data < ["y"], data <= ["x"], data > ["a"], data >= ["y"], sorted([["z"], data, ["a"]])),
    "sorted": lambda data: sorted(data, reverse=True),
    "json": json.dumps,
    "pydantic": TypeAdapter(list[str]).validate_python,
    "isinstance": lambda data: isinstance(data, list),
}


class Size(IntEnum):
    SMALL = 1


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize("read", READ_DICT.values(), ids=READ_DICT)
def test_a_dict_of_records_reads_as_a_dict(read: Callable[[Any], object]) -> None:
    """Each way to read one gives what the same way gives for a dict of Python."""
    assert read(Records(DATA)) == read(dict(DATA))


@pytest.mark.parametrize("read", READ_LIST.values(), ids=READ_LIST)
def test_a_list_of_records_reads_as_a_list(read: Callable[[Any], object]) -> None:
    """Each way to read one gives what the same way gives for a list of Python."""
    assert read(Records(DATA)["b"]["tags"]) == read(["x", "y"])


@pytest.mark.parametrize("way", range(12))
@pytest.mark.parametrize("picks", [[], [0], [0, 0], [1, 1], [1, 0]], ids=str)
def test_a_change_is_the_same_as_of_plain_data(picks: list[int], way: int) -> None:
    """Every method that changes a dict or list."""
    records, data = Records(DATA), json.loads(json.dumps(DATA))
    edit(records, picks, way)
    edit(data, picks, way)
    assert json.dumps(records) == json.dumps(data)


def pickled(data: Any) -> Any:
    """What another process would load."""
    return pickle.loads(pickle.dumps(data))  # noqa: S301 - it was written here


@pytest.mark.parametrize("made", [copy.deepcopy, pickled])
def test_a_deep_copy_is_plain(made: Callable[[Any], Any]) -> None:
    """A copy that leaves the process, or is changed later, has nothing to do with the records."""
    records = Records(DATA)
    copied, tags = made(records), made(records["b"]["tags"])
    assert (copied, tags) == (DATA, ["x", "y"])
    assert type(copied) is type(copied["a"]) is dict
    assert type(tags) is type(copied["a"]["items"]) is list


def test_dicts_and_lists_of_records_cannot_be_hashed() -> None:
    """As those of Python."""
    records = Records(DATA)
    for container in (records, records["b"]["tags"]):
        with pytest.raises(TypeError):
            hash(container)


def test_what_is_absent_raises_as_in_python() -> None:
    """And nothing has changed."""
    records = Records(DATA)
    tags = records["b"]["tags"]
    with pytest.raises(KeyError):
        records["z"]
    for act in (lambda: records.pop("z"), lambda: records.__delitem__("z"), Records().popitem):
        with pytest.raises(KeyError):
            act()
    for act in (lambda: tags[9], lambda: tags.pop(9), lambda: tags.__delitem__(9)):
        with pytest.raises(IndexError):
            act()
    for act in (lambda: tags.remove("z"), lambda: tags.index("z")):
        with pytest.raises(ValueError, match="z"):
            act()
    assert records.pop("z", None) is None
    assert records == DATA


def test_what_goes_in_is_copied() -> None:
    """Each dict and list has one place, so a change of it is a change of that place alone."""
    given: dict[str, Any] = {"items": [{"n": 1}]}
    records = Records({"a": given})
    records["b"] = given
    records["c"] = records["a"]
    given["items"].append({"n": 2})
    records["a"]["items"][0]["n"] = 3
    assert records == {"a": {"items": [{"n": 3}]}, "b": {"items": [{"n": 1}]}, "c": {"items": [{"n": 1}]}}


def test_what_stays_in_its_place_stays_itself() -> None:
    """After `+=` and after a slice is assigned, a reference to a part changes that part still."""
    records = Records({"items": [{"n": 1}, {"n": 2}]})
    items, second = records["items"], records["items"][1]
    records["items"] += [{"n": 3}]
    records["items"][:] = [item for item in items if item["n"] > 1]
    records["items"][0] = second
    second["n"] = 5
    assert records["items"] is items
    assert records == {"items": [{"n": 5}, {"n": 3}]}
    records["items"] *= 2
    second["n"] = 6
    assert records == {"items": [{"n": 6}, {"n": 3}, {"n": 5}, {"n": 3}]}


def test_what_is_removed_is_returned() -> None:
    """It can be read, and set elsewhere."""
    records = Records({"a": {"n": 1}, "items": [{"n": 2}, {"n": 3}]})
    records["b"] = records.pop("a")
    records["items"].append(records["items"].pop(0))
    assert records.popitem() == ("b", {"n": 1})
    assert records == {"items": [{"n": 3}, {"n": 2}]}


def test_tuples_and_members_of_enumerations_are_taken() -> None:
    """As `json.dumps` takes them."""
    records = Records({"a": (1, (2,)), "size": Size.SMALL, "colour": Colour.RED, "no": None, "yes": True, "x": 1.5})
    assert records == {"a": [1, [2]], "size": 1, "colour": "red", "no": None, "yes": True, "x": 1.5}
    records["a"].extend((3, (4,)))
    assert json.loads(json.dumps(records["a"])) == [1, [2], 3, [4]]


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
DEEP: Any = json.loads("[" * 201 + "]" * 201)


@pytest.mark.parametrize(
    "value",
    [1j, {1, 2}, b"bytes", float("nan"), float("inf"), {"k": {1: "a key"}}, {"k": [object]}, ENDLESS, DEEP],
    ids=["complex", "set", "bytes", "nan", "infinity", "key", "class", "endless", "deep"],
)
def test_what_has_no_form_in_json_is_refused(value: Any, wording: Wording) -> None:
    """Where it goes in, with its place; nothing is set."""
    records = Records({"a": {"items": [1]}})
    acts: tuple[Callable[[], object], ...] = (
        lambda: Records({"new": value}),
        lambda: records["a"].__setitem__("new", value),
        lambda: records.update(fine=1, new=value),
        lambda: records.setdefault("new", value),
        lambda: records["a"]["items"].append(value),
        lambda: records["a"]["items"].extend([1, value]),
        lambda: records["a"]["items"].insert(0, value),
        lambda: records["a"]["items"].__setitem__(0, value),
        lambda: records["a"]["items"].__setitem__(slice(None), [value]),
    )
    for act in acts:
        with pytest.raises(InvalidArgumentError) as caught:
            act()
        if act is acts[0]:
            assert str(caught.value) == wording
    assert records == {"a": {"items": [1]}}


def test_a_key_that_is_not_text_is_refused() -> None:
    """At any level, also of the records themselves."""
    records, given = Records(), cast("dict[str, Any]", {1: 1})
    for act in (partial(Records, given), partial(records.update, given), partial(records.setdefault, *given)):
        with pytest.raises(InvalidArgumentError):
            act()
    assert records == {}
