"""Which places in the arguments of a tool its JSON Schema declares: whether a rule about `options.force` can ever fit.

| the schema | a place in it |
|---|---|
| has the property, the items, or a schema for all other keys | is declared, if the rest of the way is |
| lets any key or value through: `true`, no type, `additionalProperties: true`, `patternProperties` | may be there |
| is an object with properties and says nothing of others | is not declared, as that of a function is |
| is a choice (`anyOf`, `oneOf`, `allOf`) | is as in the choice that comes nearest to declaring it |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from handrail.agents.approval.matching import Segment

Declares = bool | None
"""Whether a place is declared; `None` if it may be there without being declared."""

_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_MOST_PLACES: Final = 500
_MOST_VISITED: Final = 5_000
_DEEPEST: Final = 8


def declares(schema: Mapping[str, Any], segments: Sequence[Segment]) -> Declares:
    """Whether the schema of a tool's arguments declares a place.

    If all arguments stand within one, the place is also looked for there, as rules look for it in a call.

    Args:
        schema: the JSON Schema of the arguments.
        segments: the steps to the place.
    """
    search = _Search(schema)
    try:
        found = search.declares(schema, tuple(segments))
        properties = _mapping(schema.get("properties"))
        if found is False and len(properties) == 1:
            return search.declares(next(iter(properties.values())), tuple(segments))
    except RecursionError:  # nested as only a server would
        return None
    return found


def declared_places(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The first 500 places that a schema declares, as rules write them: `path`, `options.force`, `steps[*].title`."""
    found: dict[str, None] = {}
    to_visit: deque[tuple[object, str, int]] = deque([(schema, "", 0)])
    for _ in range(_MOST_VISITED):
        if not to_visit or len(found) >= _MOST_PLACES:
            break
        part, at, depth = to_visit.popleft()
        if not isinstance(part, Mapping) or depth > _DEEPEST:
            continue
        here = cast("Mapping[str, Any]", part)  # a JSON object
        below = [(f"{at}.{name}" if at else name, value) for name, value in _mapping(here.get("properties")).items()]
        if at and "items" in here:
            below.append((f"{at}[*]", here["items"]))
        found |= dict.fromkeys(place for place, _ in below)
        to_visit.extend((value, place, depth + 1) for place, value in below)
        same = [choice for key in _CHOICES for choice in _list(here.get(key))]
        if "$ref" in here:
            same.append(_referred(str(here["$ref"]), schema))
        to_visit.extend((choice, at, depth + 1) for choice in same)
    return tuple(found)[:_MOST_PLACES]


class _Search:
    """Looks for places in one schema. Each part of it is looked at once for each place, however often it is named."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._seen: dict[tuple[int, tuple[Segment, ...]], Declares] = {}

    def declares(self, schema: object, segments: tuple[Segment, ...]) -> Declares:
        """Whether a part of the schema declares a place."""
        if schema is None:
            return None
        if schema is False or not segments:
            return schema is not False
        if not isinstance(schema, Mapping):
            return None
        here = cast("Mapping[str, Any]", schema)  # a JSON object
        part = id(here), segments
        if part not in self._seen:
            self._seen[part] = False  # as long as it is looked at: a reference that leads in a circle declares nothing
            self._seen[part] = self._looked_up(here, segments)
        return self._seen[part]

    def _looked_up(self, here: Mapping[str, Any], segments: tuple[Segment, ...]) -> Declares:
        if "$ref" in here:
            return self.declares(_referred(str(here["$ref"]), self._root), segments)
        choices = [choice for key in _CHOICES for choice in _list(here.get(key))]
        answers = [self.declares(choice, segments) for choice in choices]
        if not choices or "properties" in here or "items" in here:
            answers += [self.declares(below, segments[1:]) for below in _steps(here, segments[0])]
        return _nearest(answers)


def _steps(here: Mapping[str, Any], segment: Segment) -> Iterator[object]:
    """The schemas of what one step leads to; `None` where it may lead to what is not declared."""
    kinds = _kinds(here)
    if "object" in kinds and not isinstance(segment, int):
        properties = _mapping(here.get("properties"))
        others = here.get("additionalProperties", not properties)
        if "patternProperties" in here:
            others = True
        if segment is None:
            yield from properties.values()
        elif segment in properties:
            yield properties[segment]
            return
        yield None if others is True else others
    if "array" in kinds and not isinstance(segment, str):
        firsts = _list(here.get("prefixItems"))
        if isinstance(segment, int) and segment < len(firsts):
            yield firsts[segment]
            return
        if segment is None:
            yield from firsts
        items = here.get("items", not firsts)
        yield None if items is True else items


def _kinds(here: Mapping[str, Any]) -> frozenset[str]:
    """What values a schema takes: objects, arrays, or both where it does not say."""
    said: object = here.get("type")
    if isinstance(said, str):
        return frozenset({said})
    if isinstance(said, list):
        return frozenset(map(str, cast("list[object]", said)))
    if "enum" in here or "const" in here:
        return frozenset()
    return frozenset({"object", "array"})


def _referred(name: str, root: Mapping[str, Any]) -> object:
    """What a reference within the schema leads to; `None` if it leads elsewhere."""
    found: object = root
    for part in name.removeprefix("#").split("/")[1:] if name.startswith("#") else (name,):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = cast("Mapping[str, object]", found)[part]
    return found


def _nearest(answers: Iterable[Declares]) -> Declares:
    given = list(answers)
    if True in given:
        return True
    return None if None in given else False


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list) else ()
