"""Worlds that gold actions change, and tools that say how each action is undone.

A world is the environment of a suite. A place in it has a path: `bank_account.scheduled_transactions.7` is the item of
a list whose `id` is 7. An action captures the places that it will change, and its undo writes them back, or calls the
function of the suite that is its inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal, TypeAlias, TypeGuard

from pydantic import BaseModel, TypeAdapter

from handrail.filesystem import Filesystem
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolResult,
    ToolsSection,
)
from handrail.runtime import Session
from tests.taint.agentdojo.injected import Asked

Kind: TypeAlias = Literal["read", "state", "external"]
Captured: TypeAlias = dict[str, dict[str, Any]]
"""What was at each place: `{"value": …}`, or `{}` where nothing was."""

Change: TypeAlias = tuple[tuple[Any, ...], Any]
"""A path in a dump, and what is there after the change."""

_JSON: TypeAdapter[Any] = TypeAdapter(Any)
_NOTHING = object()


@dataclass(frozen=True, slots=True)
class World:
    """The environment of an entry.

    Attributes:
        root: what paths begin at.
        run: runs a function of the suite by its name, and returns its value as JSON has it.
        dump: returns all that is public, as values that can be compared.
        files: the files that actions change.
    """

    root: object
    run: Callable[[Asked], Any]
    dump: Callable[[], Any]
    files: Filesystem | None = None


@dataclass(frozen=True, slots=True)
class Inverse:
    """How an action is undone.

    Attributes:
        places: the paths that are written back, with `{name}` for an argument; or a function that lists them.
        removes: paths that are removed, with `{name}` for a part of the result.
        call: the call of the suite that undoes the action, by its arguments, its result and what was captured.
    """

    places: Sequence[str] | Callable[[Any, Mapping[str, Any]], Iterable[str]] = ()
    removes: Sequence[str] = ()
    call: Callable[[Mapping[str, Any], Any, Captured], Asked] | None = None

    def capture(self, world: World, arguments: Mapping[str, Any]) -> Captured:
        """Reads the places that the action will change."""
        paths = self.places(world.root, arguments) if callable(self.places) else self.places
        values = {path.format(**arguments): look_up(world.root, path.format(**arguments)) for path in paths}
        return {path: {} if value is _NOTHING else {"value": as_json(value)} for path, value in values.items()}

    def run(self, world: World, arguments: Mapping[str, Any], value: Any, before: Captured) -> None:
        """Undoes the action."""
        if self.call is not None:
            world.run(self.call(arguments, value, before))
            return
        for path in self.removes:
            write_back(world.root, path.format(**value), {})
        for path, content in before.items():
            write_back(world.root, path, content)


@dataclass(frozen=True, slots=True)
class Action:
    """A function of a suite, as a tool.

    Attributes:
        name: its name.
        description: what it says of itself.
        schema: the JSON Schema of its arguments.
        kind: its effect.
        inverse: how it is undone; without one an external action is irreversible.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    kind: Kind
    inverse: Inverse | None = None

    def tool(self) -> Tool[Any, Any]:
        """The tool."""
        options: dict[str, Any] = {"effect": self.kind}
        if self.kind == "external" and self.inverse is not None:
            options |= {"capture": self._capture, "undo": self._undo} if self.inverse.places else {"undo": self._undo}
        return Tool.from_json_schema(
            name=self.name, description=self.description, schema=self.schema, handler=self._run, **options
        )

    def _run(self, arguments: dict[str, Any], world: World) -> Any:
        value = world.run(Asked(self.name, arguments))
        return ToolResult.error(value["error"]) if is_object(value) and "error" in value else value

    def _capture(self, params: dict[str, Any], *, context: ToolContext) -> Captured:
        assert self.inverse is not None
        return self.inverse.capture(context.resources.get(World), params)

    def _undo(self, params: Any, result: ToolResult[Any], before: Captured | None, *, context: ToolContext) -> None:
        assert self.inverse is not None
        self.inverse.run(context.resources.get(World), params, result.value, before or {})


@dataclass(frozen=True, slots=True)
class Entry:
    """Gold actions that begin in one world.

    Attributes:
        suite: the row of the table that it belongs to.
        name: its name.
        calls: the actions, in order.
        prompt: makes the prompt that has the tools, for a world and a session.
        start: makes the world.
        approver: answers the questions of policies.
        remains: the part of the world in which others know of a call, which undo leaves, by the function.
    """

    suite: str
    name: str
    calls: Sequence[Asked]
    prompt: Callable[[World, Session], Prompt[Any]]
    start: Callable[[], World]
    approver: Callable[[ApprovalRequest], Approval] | None = None
    remains: Mapping[str, str] = field(default_factory=dict[str, str])

    def __str__(self) -> str:
        """The entry as the id of a test."""
        return f"{self.suite}-{self.name}"


def prompt_with(tools: Sequence[Tool[Any, Any]]) -> Callable[[World, Session], Prompt[Any]]:
    """Makes prompts of an entry that has tools and no text."""
    template = PromptTemplate(ns="tests", key="gold", sections=[ToolsSection(title="Tools", tools=tools)])

    def make(world: World, _: Session) -> Prompt[Any]:
        files = {} if world.files is None else {Filesystem: world.files}
        return Prompt(template, resources={World: world, **files})

    return make


def is_object(value: object) -> TypeGuard[dict[Any, Any]]:
    """Tells whether a value is a dictionary, of anything."""
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def as_json(value: Any) -> Any:
    """A value as JSON has it; a copy of its own."""
    return _JSON.dump_python(value, mode="json", fallback=str)


def look_up(root: object, path: str) -> Any:
    """What is at a path."""
    return reduce(_part, path.split("."), root)


def write_back(root: object, path: str, content: Mapping[str, Any]) -> None:
    """Writes what was captured of a path; models keep their identity, since lists of their world share them."""
    above, _, name = path.rpartition(".")
    parent, present = look_up(root, above), look_up(root, path)
    if not content:
        if is_object(parent):
            parent.pop(_key(parent, name))
        else:
            parent.remove(present)
        return
    value = content["value"]
    if isinstance(present, BaseModel):
        was = type(present).model_validate(value)
        for each in type(present).model_fields:
            setattr(present, each, getattr(was, each))
    elif _is_list(parent):
        parent[parent.index(present)] = value
    elif is_object(parent):
        sample = next((each for each in parent.values() if isinstance(each, BaseModel)), None)
        parent[_key(parent, name)] = value if sample is None else type(sample).model_validate(value)
    else:
        setattr(parent, name, value)


def changes(before: Any, after: Any, path: tuple[Any, ...] = ()) -> Iterator[Change]:
    """Where two dumps differ, with what is there after; `_NOTHING` where nothing is."""
    if before == after:
        return
    if is_object(before) and is_object(after):
        for key in {**before, **after}:
            old, new = before.get(key, _NOTHING), after.get(key, _NOTHING)
            yield from changes(old, new, (*path, key))
    elif _is_list(before) and _is_list(after) and len(before) <= len(after):
        for place, new in enumerate(after):
            yield from changes(before[place] if place < len(before) else _NOTHING, new, (*path, place))
    else:
        yield path, after


def apply_changes(dump: Any, made: Iterable[Change]) -> None:
    """Makes the changes of a call in another dump, whose lists may have fewer items than those that it was made in."""
    for (*above, name), value in made:
        parent = reduce(lambda part, key: part.setdefault(key, []) if is_object(part) else part[key], above, dump)
        if value is _NOTHING:
            del parent[name]
        elif _is_list(parent) and name >= len(parent):
            parent.append(value)
        else:
            parent[name] = value


def _part(value: Any, name: str) -> Any:
    if value is _NOTHING or not name:
        return value
    if is_object(value):
        return value.get(_key(value, name), _NOTHING)
    if _is_list(value):
        return next((each for each in value if str(_id_field(each)) == name), _NOTHING)
    return getattr(value, name)


def _id_field(item: Any) -> Any:
    return item.get("id") if is_object(item) else getattr(item, "id", None)


def _key(value: dict[Any, Any], name: str) -> Any:
    return next((key for key in value if str(key) == name), name)
