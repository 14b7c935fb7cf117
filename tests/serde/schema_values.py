"""What a published JSON Schema takes, to draw from: decoded JSON, but for the exceptions in `docs/reference/values.md`.

Texts of a format are well formed, patterns are simple, numbers have at most 15 digits, nothing is nested deeply, no
text has a lone surrogate, and no two keys of an object mean the same.
"""

from __future__ import annotations

import datetime as dt
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, cast
from uuid import UUID

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from handrail.serde.json_schema import DECIMAL, FRACTION, KEY_FORMS, is_object, resolve_ref
from tests.serde.shapes import Json

Node = Mapping[str, Any]
Drawn = st.SearchStrategy[Any]

_DEEPEST: Final = 4
_text = st.text(max_size=6)
_offsets = st.none() | st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
_days = st.dates(dt.date(1000, 1, 1))
_least, _most = (dt.datetime.fromisoformat(day) for day in ("1000-01-02", "9999-12-30"))
_moments = st.datetimes(_least, _most, timezones=cast("Any", _offsets))
_spans = st.timedeltas(dt.timedelta(days=-1_000_000), dt.timedelta(days=1_000_000))
_decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9)

FORMATS: Final[Mapping[str, st.SearchStrategy[str]]] = {
    "date-time": _moments.map(dt.datetime.isoformat) | _moments.map(lambda moment: f"{moment:%Y-%m-%dT%H:%M}Z"),
    "date": _days.map(dt.date.isoformat),
    "time": st.times().map(dt.time.isoformat),
    "duration": _spans.map(lambda span: f"{'-' * (span.days < 0)}P{abs(span).days}DT{abs(span).seconds}S"),
    "uuid": st.uuids().map(str),
    "base64url": st.binary(max_size=8).map(lambda data: urlsafe_b64encode(data).decode()),
    "path": st.text("abc./ ", min_size=1, max_size=8),
    "ipv4": st.ip_addresses(v=4).map(str),
    "ipv6": st.ip_addresses(v=6).map(str),
    "ipv4network": st.ip_addresses(v=4).map(lambda address: f"{address}/32"),
    "regex": st.sampled_from(["a+", "^[a-z]*$"]),
}
"""Well-formed texts of each format."""

PATTERNS: Final[Mapping[str, tuple[st.SearchStrategy[str], Callable[[str], object]]]] = {
    DECIMAL: (_decimals.map(str) | st.sampled_from(["1.", ".5", "+1e2"]), Decimal),
    FRACTION: (st.fractions().map(str) | st.sampled_from(["+1/3", "0.5"]), Fraction),
    KEY_FORMS["integer"]: (st.integers().map(str), int),
    KEY_FORMS["uuid"]: (st.uuids().map(str), UUID),
}
"""Texts of the patterns that Handrail publishes itself, and what each of them means."""

_MEANINGS: Final[Mapping[str, Callable[[str], object]]] = {
    "date-time": lambda text: (moment := dt.datetime.fromisoformat(text)).tzinfo is None or moment.timestamp(),
    "duration": lambda text: text.lstrip("-"),
    "uuid": UUID,
    "path": lambda text: text.strip("/. "),
}
"""What a key of a format means, where two texts may mean the same."""


def is_valid(schema: Node, value: Json) -> bool:
    """Whether a common validator of JSON Schema takes decoded JSON; formats are not checked."""
    validator: Any = Draft202012Validator(schema)  # its own types are only partly known
    return bool(validator.is_valid(value))


def taken_by(node: Node, root: Node, depth: int = 0) -> Drawn:
    """Decoded JSON that a schema takes; `root` holds its definitions."""
    node = resolve_ref(node, root)
    options = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    if options:
        ending = [option for option in options if _ends(option, root, depth)]
        return st.one_of([taken_by(option, root, depth + 1) for option in ending or options])
    if "enum" in node or "const" in node:
        choices: list[Json] = node.get("enum", [node.get("const")])
        return st.sampled_from([form for choice in choices for form in _forms(choice)])
    kinds: Mapping[str, Callable[[], Drawn]] = {
        "string": lambda: _strings(node),
        "integer": lambda: _numbers(node, whole=True),
        "number": lambda: _numbers(node, whole=False),
        "boolean": st.booleans,
        "null": st.none,
        "array": lambda: _arrays(node, root, depth),
        "object": lambda: _objects(node, root, depth),
    }
    return kinds[node["type"]]() if "type" in node else _anything


_anything: Final[Drawn] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(-1e20, 1e20) | _text,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(_text, some, max_size=3),
    max_leaves=5,
)


def _ends(option: Node, root: Node, depth: int) -> bool:
    """Whether an option may be drawn: deep down, only what holds nothing else."""
    return depth < _DEEPEST or resolve_ref(option, root).get("type") not in {"array", "object"}


def _forms(choice: Json) -> list[Json]:
    """A choice as JSON may write it: a number with a fraction of zero, and without."""
    if isinstance(choice, bool) or not isinstance(choice, int | float):
        return [choice]
    return [choice, float(choice)] if float(choice).is_integer() else [choice]


def _strings(node: Node) -> Drawn:
    pattern, form = str(node.get("pattern", "")), str(node.get("format", ""))
    least, most = node.get("minLength", 0), node.get("maxLength")
    if pattern in PATTERNS:
        return PATTERNS[pattern][0]
    if form in FORMATS:
        return FORMATS[form]
    if pattern:
        return st.from_regex(re.compile(pattern, re.ASCII)).filter(lambda text: not text.endswith("\n"))
    return st.text(min_size=least, max_size=6 if most is None else most)


def _numbers(node: Node, *, whole: bool) -> Drawn:
    least, most = node.get("minimum", node.get("exclusiveMinimum")), node.get("maximum", node.get("exclusiveMaximum"))
    low, high = (-(10**20) if least is None else least), (10**20 if most is None else most)
    step = node.get("multipleOf", 1 if whole else None)
    if step is None:
        floats = st.floats(float(low), float(high), allow_subnormal=False).map(lambda number: float(f"{number:.15g}"))
        numbers: Drawn = st.integers(int(low), int(high)) | floats
    else:
        numbers = st.integers(int(low / step), int(high / step)).map(lambda times: times * step)
        numbers = numbers | numbers.filter(lambda number: abs(number) < 10**15).map(float)
    return numbers.filter(lambda number: number not in {node.get("exclusiveMinimum"), node.get("exclusiveMaximum")})


def _arrays(node: Node, root: Node, depth: int) -> Drawn:
    fixed = [taken_by(item, root, depth + 1) for item in node.get("prefixItems", ())]
    if fixed:
        return st.tuples(*fixed).map(list)
    items = node.get("items", {})
    if not is_object(items):
        return st.just([])
    least = node.get("minItems", 0)
    most = node.get("maxItems", least + (3 if depth < _DEEPEST else 0))
    held = taken_by(items, root, depth + 1) if most else st.nothing()
    return st.lists(held, min_size=least, max_size=most, unique_by=_sameness if node.get("uniqueItems") else None)


def _sameness(item: Json) -> object:
    """What is equal for items that JSON Schema holds for equal."""
    return item if isinstance(item, int | float) and not isinstance(item, bool) else repr(item)


def _objects(node: Node, root: Node, depth: int) -> Drawn:
    properties: Node = node.get("properties", {})
    if properties:
        required = {name: taken_by(properties[name], root, depth + 1) for name in node.get("required", ())}
        others = {name: part for name, part in properties.items() if name not in required}
        optional = {
            name: taken_by(part, root, depth + 1) for name, part in others.items() if _ends(part, root, depth + 1)
        }
        return st.fixed_dictionaries(required, optional=optional)
    items: object = node.get("additionalProperties", False)
    if items is False:
        return st.just({})
    held = taken_by(cast("Node", items) if is_object(items) else {}, root, depth + 1)
    named: Node = resolve_ref(node.get("propertyNames", {}), root)
    keys: Drawn = st.sampled_from(named["enum"]) if "enum" in named else _strings(named)
    least = node.get("minProperties", 0)
    most = node.get("maxProperties", least + (3 if depth < _DEEPEST else 0))
    meaning = _MEANINGS.get(named.get("format", ""), PATTERNS.get(named.get("pattern", ""), (None, str))[1])
    pairs = st.lists(st.tuples(keys, held), min_size=least, max_size=most, unique_by=lambda pair: meaning(pair[0]))
    return pairs.map(dict)
