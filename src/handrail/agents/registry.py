"""The registry: tools and toolsets by name, in two namespaces, each with where it comes from.

A registry never changes. `resolve` looks up the names of an agent file, each in the namespace of its field, and in no
other.

The exports of a module or a program become entries: a list, a tuple or a mapping of tools (`TOOLS`) or
toolsets (`TOOLSETS`). All faults are reported together.

- A tool is registered under its own name, as the model sees it; a key that is another name is a fault.
- A plain function becomes a tool here, once, as by the decorator `tool`; one that cannot be a tool is a fault.
- A toolset is registered under its key; in a list under its `id`, a section's key, or the name of its factory.

| object | is |
|---|---|
| a `Tool` of PydanticAI or of Handrail | a tool |
| a toolset of PydanticAI, a section, a factory with its settings, an agent by its name | a toolset |
| a function that is annotated to return a toolset or a section | a factory of toolsets |
| any other function, or object that can be called | a tool in `TOOLS`, in `TOOLSETS` a factory |
| a class, a module, an agent of PydanticAI, what cannot be called | neither |

A `tools.py` without `TOOLS` exports nothing, whatever it defines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType, MethodType
from typing import Any, Literal, NamedTuple, cast, get_origin

from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.toolsets import AbstractToolset

from handrail.agents.agent_file import AgentFile
from handrail.errors import DiscoveryError, PromptValidationError, RegistryError, ResolutionError, ToolSignatureError
from handrail.prompt import Section, Tool
from handrail.prompt.function_tools import function_tool
from handrail.prompt.signature import calling_fault, return_fault, returned_type
from handrail.serde.formatting import enumerated, nearest, shorten

Kind = Literal["tool", "toolset"]
"""The two namespaces: one name may be in both for different things."""

FactoryProduct = AbstractToolset[Any] | Section[Any] | None
"""The product of a factory; `None` for no tools."""

FactoryFunction = Callable[[RunContext[Any]], FactoryProduct | Awaitable[FactoryProduct]]
"""Makes a toolset when a run begins: takes PydanticAI's run context, plain or `async`."""

ToolDef = PydanticTool[Any] | Tool[Any, Any]
"""The value behind the name of a tool."""

_MOST_LISTED = 600  # bytes of names
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class ToolsetFactory:
    """A function that makes a toolset, once for each run, or at every step of it. Made by `toolset_factory`.

    `known_tools` gives the tools of its products, by name, before it is called; `None` if only a run shows them. They
    are declared as those of a run will be, and work on nothing.
    """

    function: FactoryFunction
    per_run_step: bool = False
    known_tools: Callable[[], Mapping[str, ToolDef]] | None = None

    @property
    def qualname(self) -> str:
        """The name of the function, for messages."""
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)


def toolset_factory(function: FactoryFunction, *, per_run_step: bool = False) -> ToolsetFactory:
    """A factory with its settings.

    Write `TOOLSETS = {"desk": toolset_factory(make_desk, per_run_step=True)}`. A bare function in `TOOLSETS` is called
    once for each run, where PydanticAI's own default is each step.
    """
    return ToolsetFactory(function, per_run_step)


@dataclass(frozen=True, slots=True)
class AgentReference:
    """An agent as a toolset of one tool, which runs it; its input is a text, or of `input_type`."""

    name: str
    input_type: type[Any] | None = None


ToolsetDef = AbstractToolset[Any] | Section[Any] | ToolsetFactory | AgentReference
"""The value behind the name of a toolset."""


EXPORT_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools, toolsets and agents; all of a name must match."""

BUILT_IN = "built-in"
"""The origin of built-in entries."""

_PROGRAM = "program"


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered tool or toolset: a name of one kind, the very object, and where it comes from.

    `origin` is a file below the project folder, `built-in` or `program`.

    Raises:
        RegistryError: the name is not valid.
    """

    name: str
    kind: Kind
    value: ToolDef | ToolsetDef
    origin: str

    def __post_init__(self) -> None:
        if EXPORT_NAME_PATTERN.fullmatch(self.name) is None:
            name = shorten(repr(self.name), _LONGEST_NAME)
            raise RegistryError(
                f"{self.kind} {name} ({self.origin}): a name is 1 to 64 letters, digits, '_' and '-'",
                names=[str(self.name)],
            )

    @property
    def label(self) -> str:
        """In words, for messages: `tool ping (tools.py)`, `toolset files (built-in)`."""
        return f"{self.kind} {self.name} ({self.origin})"


_FIELDS: Mapping[Kind, str] = {"tool": "TOOLS", "toolset": "TOOLSETS"}
_CURES: Mapping[Kind, str] = {
    "tool": "and no tool; export functions that are written with def, and Tool objects",
    "toolset": "and no toolset; export an instance, or a factory",
}


class ExportFault(NamedTuple):
    """A reason why an export cannot be registered, with its name or its place in the list."""

    name: str
    fault: str

    def __str__(self) -> str:
        return f"{self.name}: {self.fault}"


class _Refused(Exception):  # its argument is the reason why an export cannot be registered
    pass


def collect_entries(
    kind: Kind, value: object, origin: str, faults: list[ExportFault], *, field: str = ""
) -> list[Entry]:
    """The entries of a list, a tuple or a mapping of tools, or of toolsets; its items are neither called nor changed.

    `faults` gets the reason for each item that cannot be registered; `field` is the name of the list in them.
    """
    field = field or _FIELDS[kind]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        for key, _ in pairs:
            if not isinstance(key, str):
                faults.append(ExportFault(repr(key), f"a key of {field} is a name, a string"))
        return collect_items(kind, [(key, item) for key, item in pairs if isinstance(key, str)], origin, faults)
    if isinstance(value, list | tuple):
        return collect_items(kind, [(None, item) for item in cast("Sequence[object]", value)], origin, faults)
    text = "None" if value is None else f"of type {type(value).__name__}"
    faults.append(ExportFault(field, f"is {text}, but must be a list, tuple or dict; write {field} = [] for none"))
    return []


def collect_items(
    kind: Kind, items: Iterable[tuple[str | None, object]], origin: str, faults: list[ExportFault]
) -> list[Entry]:
    """The entries of items with their keys; a name that comes a second time is a fault."""
    entries: dict[str, Entry] = {}
    for place, (key, item) in enumerate(items, start=1):
        try:
            entry = _entry(kind, key, item, origin)
        except (_Refused, RegistryError) as error:
            faults.append(ExportFault(shorten(key or _name_for_messages(item, place), _LONGEST_NAME), str(error)))
            continue
        if entry.name in entries:
            faults.append(ExportFault(entry.name, f"is there twice as a {kind}; give one of them another name"))
        # The first one stays registered, so that names which refer to it are not reported as missing too.
        entries.setdefault(entry.name, entry)
    return list(entries.values())


def check_exports(what: str, faults: Sequence[ExportFault], *, module: str, hint: str = "") -> None:
    """Raises a `DiscoveryError` with all faults of exports, if there are any; its message begins with `what`."""
    if faults:
        raise DiscoveryError(
            bullet_list(what, faults) + hint, module=module, offenders=[fault.name for fault in faults]
        )


def bullet_list(what: str, faults: Sequence[object]) -> str:
    """A message of one fault on one line, or of several, one a line."""
    return f"{what}: {faults[0]}" if len(faults) == 1 else "\n  - ".join((f"{what}:", *map(str, faults)))


def factory_fault(factory: ToolsetFactory) -> str | None:
    """The reason why a factory cannot be called with a run context, with the cure; `None` if it can."""
    function = cast("object", factory.function)
    if isinstance(function, type) or not callable(function):
        return f"{_describe(function)} cannot be a factory; write a function, def make(ctx)"
    fault = calling_fault(function, (RunContext,), {}) or return_fault(function, (AbstractToolset, Section))
    cure = "a factory takes the run context and returns a toolset: write def make(ctx)"
    return fault and f"the factory {factory.qualname} {fault}; {cure}"


def _entry(kind: Kind, key: str | None, item: object, origin: str) -> Entry:
    if kind == "tool":
        tool = _tool(item)
        if key is not None and key != tool.name:
            raise _Refused(
                f"is exported as {key!r}, but the tool is called {tool.name!r}, and models see its own name; make them "
                f"the same, e.g. by Tool(function, name={key!r})"
            )
        return Entry(tool.name, kind, tool, origin)
    toolset = _toolset(item)
    return Entry(_toolset_name(toolset) if key is None else key, kind, toolset, origin)


def _tool(item: object) -> ToolDef:
    text = _describe(item)
    if isinstance(item, PydanticTool | Tool):
        tool: ToolDef = cast("Any", item)  # whatever its parameters are
        return tool
    if _is_toolset(item) or (callable(item) and _makes_toolset(item)):
        raise _Refused(f"is {text}, which is a toolset; put it in TOOLSETS, and name it in `toolsets:`")
    # Other objects that can be called have no name or no annotations.
    if not isinstance(item, FunctionType | MethodType) or item.__name__ == "<lambda>":
        raise _Refused(f"is {text}, {_CURES['tool']}")
    try:
        own_tool: Tool[Any, Any] = function_tool(item, {})
    except ToolSignatureError as error:
        separator = " " if len(error.faults) == 1 else "\n      "
        raise _Refused(f"cannot be a tool:{''.join(f'{separator}{fault}' for fault in error.faults)}") from error
    except PromptValidationError as error:  # its name, or its docstring
        raise _Refused(f"cannot be a tool: {error}") from error
    return own_tool


def _toolset(item: object) -> ToolsetDef:
    text = _describe(item)
    if _is_toolset(item) and not isinstance(item, ToolsetFactory):
        return cast("ToolsetDef", item)
    if isinstance(item, PydanticTool | Tool):
        raise _Refused(f"is {text}; put it in TOOLS, and name it in `tools:`")
    if not isinstance(item, ToolsetFactory) and (not callable(item) or isinstance(item, type | AbstractAgent)):
        raise _Refused(f"is {text}, {_CURES['toolset']}")
    factory = item if isinstance(item, ToolsetFactory) else ToolsetFactory(cast("Any", item))
    if fault := factory_fault(factory):
        raise _Refused(f"is not a toolset: {fault}. If it is a tool, put it in TOOLS, and name it in `tools:`")
    return factory


def _is_toolset(item: object) -> bool:
    return isinstance(item, AbstractToolset | Section | ToolsetFactory | AgentReference)


def _makes_toolset(function: Callable[..., object]) -> bool:
    annotation = returned_type(function)
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, AbstractToolset | Section)


def _toolset_name(toolset: ToolsetDef) -> str:
    if isinstance(toolset, Section):
        return toolset.key
    if isinstance(toolset, AgentReference):
        return toolset.name
    factory = toolset.function if isinstance(toolset, ToolsetFactory) else None
    name = getattr(factory, "__name__", None) if isinstance(toolset, ToolsetFactory) else toolset.id
    if not isinstance(name, str) or name == "<lambda>":
        raise _Refused(
            f"is {_describe(toolset)} without an id or a name; write TOOLSETS = {{'name': ...}}, or give it one"
        )
    return name


def _name_for_messages(item: object, place: int) -> str:
    name = getattr(item, "__name__", None) or getattr(item, "name", None) or getattr(item, "id", None)
    return name if isinstance(name, str) and name.strip() else f"item {place}"


def _describe(item: object) -> str:
    if item is None:
        return "None"
    return f"the class {item.__name__}" if isinstance(item, type) else f"of type {type(item).__name__}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Registry:
    """Tools and toolsets by name; it never changes.

    Attributes:
        entries: the tools and toolsets that were registered, in their order.
        tools: the tools by name.
        toolsets: the toolsets by name.

    Raises:
        RegistryError: two entries of one kind have one name; the message has all of them.
    """

    entries: tuple[Entry, ...] = ()
    tools: Mapping[str, Entry] = field(init=False)
    toolsets: Mapping[str, Entry] = field(init=False)

    def __post_init__(self) -> None:
        _check(self.entries)
        for kind in ("tool", "toolset"):
            named = {entry.name: entry for entry in self.entries if entry.kind == kind}
            object.__setattr__(self, f"{kind}s", MappingProxyType(named))

    @classmethod
    def of_python(cls, *, tools: object = (), toolsets: object = ()) -> Registry:
        """A registry of objects of a program; the arguments are as `TOOLS` and `TOOLSETS` of a module.

        Raises:
            DiscoveryError: some cannot be registered; the message has all of them.
        """
        faults: list[ExportFault] = []
        entries = collect_entries("tool", tools, _PROGRAM, faults, field="tools")
        entries += collect_entries("toolset", toolsets, _PROGRAM, faults, field="toolsets")
        check_exports("these tools and toolsets of the program cannot be registered", faults, module="program")
        return cls(tuple(entries))


def _check(entries: tuple[Entry, ...]) -> None:
    origins: dict[tuple[str, Kind], list[str]] = defaultdict(list)
    for entry in entries:
        origins[entry.name, entry.kind].append(entry.origin)
    faults = {
        f"{kind} {name} comes from {' and from '.join(sorted(places))}; give one of them another name": name
        for (name, kind), places in origins.items()
        if len(places) > 1
    }
    if faults:
        raise RegistryError(
            bullet_list("these names cannot be registered", sorted(faults)), names=sorted(set(faults.values()))
        )


@dataclass(frozen=True, slots=True)
class ResolvedAgent:
    """An agent file with the entries that its `tools:` and its `toolsets:` name, in its order."""

    file: AgentFile
    tools: tuple[Entry, ...] = ()
    toolsets: tuple[Entry, ...] = ()


def resolve(file: AgentFile, registry: Registry) -> ResolvedAgent:
    """The entries that an agent file names.

    Raises:
        ResolutionError: some names are not registered, or their entries cannot be loaded or called; it has all of them.
    """
    faults: list[tuple[str, str]] = []
    tools = tuple(_look_up("tool", file.tools, registry, faults))
    toolsets = tuple(_look_up("toolset", file.toolsets, registry, faults))
    if faults:
        where = f" ({file.path})" if file.path is not None else ""
        raise ResolutionError(
            bullet_list(f"agent {file.name}{where} names what it cannot have", [text for _, text in faults]),
            agent=file.name,
            names=[name for name, _ in faults],
        )
    return ResolvedAgent(file, tools, toolsets)


def _look_up(kind: Kind, names: Sequence[str], registry: Registry, faults: list[tuple[str, str]]) -> Iterator[Entry]:
    there = registry.tools if kind == "tool" else registry.toolsets
    other = registry.toolsets if kind == "tool" else registry.tools
    for name in names:
        if name not in there:
            faults.append((name, _describe_missing(kind, name, there, other)))
            continue
        entry = there[name]
        fault = factory_fault(entry.value) if isinstance(entry.value, ToolsetFactory) else None
        if fault is not None:
            faults.append((name, f"`{kind}s:` has {name!r}: {entry.label}: {fault}"))
        yield entry


def _describe_missing(kind: Kind, name: str, there: Mapping[str, Entry], other: Mapping[str, Entry]) -> str:
    fault = f"`{kind}s:` has {shorten(repr(name), _LONGEST_NAME)}, but that {kind} does not exist."
    if name in other:
        namespace: Kind = "toolset" if kind == "tool" else "tool"
        fault += f" A {namespace} of that name exists; move it to `{namespace}s:`."
    if (near := nearest(name, there)) is not None:
        fault += f" Did you mean {near!r}?"
    names = enumerated(sorted(there), limit=_MOST_LISTED, near=name) or "none"
    return f"{fault} Available {kind}s: {names}; a module exports what its {kind.upper()}S lists."
