"""The registry: tools and toolsets by name, in two namespaces, each with where it comes from.

A registry never changes. The offer of an installed package is imported when its name is asked for, so a broken package
affects only agents that use it, and so does one that offers a name which another one offers. An entry wins over offers.
`resolve` finds what an agent file names. Each name is looked up in the namespace of its field, and in no other.

What a module, a package or a program exports is made into entries: a list, a tuple or a mapping of tools (`TOOLS`) or
toolsets (`TOOLSETS`). Every offender is found, not only one.

- A tool is registered under its own name, as the model sees it; a key that is another name is an offence.
- A plain function becomes a tool here, once, as by the decorator `tool`; what cannot be one is an offence.
- A toolset is registered under its key; in a list under its `id`, a section's key, or the name of its factory.

| object | is |
|---|---|
| a `Tool` of PydanticAI or of Handrail | a tool |
| a toolset of PydanticAI, a section, a factory with its settings, an agent by its name | a toolset |
| a function that is annotated to return a toolset or a section | a factory of toolsets |
| any other function, or object that can be called | a tool in `TOOLS`, in `TOOLSETS` a factory |
| a class, a module, an agent of PydanticAI, what cannot be called | neither |

Nothing is registered that a module does not list, so a `tools.py` without `TOOLS` exports nothing, whatever it defines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, MethodType
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
"""What a factory may return; `None` for no tools."""

FactoryFunction = Callable[[RunContext[Any]], FactoryProduct | Awaitable[FactoryProduct]]
"""Makes a toolset when a run begins: takes PydanticAI's run context, plain or `async`."""

ToolDef = PydanticTool[Any] | Tool[Any, Any]
"""What stands behind the name of a tool."""


@dataclass(frozen=True, slots=True)
class ToolsetFactory:
    """A function that makes a toolset, and how often it is asked to. Made by `toolset_factory`.

    Attributes:
        function: takes the run context, and returns a toolset, a section, or `None`; plain or `async`.
        per_run_step: whether it is called at every step of a run; otherwise once for each run.
        known_tools: gives the tools that it makes, by name, before it is called; `None` if only a run shows them. They
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
    """Export a factory together with its settings.

    Write `TOOLSETS = {"desk": toolset_factory(make_desk, per_run_step=True)}`. A bare function in `TOOLSETS` is called
    once for each run, where PydanticAI's own default is each step.
    """
    return ToolsetFactory(function, per_run_step)


@dataclass(frozen=True, slots=True)
class AgentReference:
    """An agent as a toolset of one tool, which runs it.

    Attributes:
        name: the agent.
        input_type: the type of its input; `None` for text.
    """

    name: str
    input_type: type[Any] | None = None


ToolsetDef = AbstractToolset[Any] | Section[Any] | ToolsetFactory | AgentReference
"""What stands behind the name of a toolset."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an entry comes from, for messages.

    Attributes:
        kind: whether Handrail brings it, a module of the project, an installed package, an agent file, or a program.
        where: the file below the project folder, or the package with its entry point; empty for what is built in.
    """

    kind: Literal["built-in", "module", "package", "agent", "program"]
    where: str = ""

    def __str__(self) -> str:
        """In words: `built-in`, `tools.py`, `package shop-tools (entry point refunds)`."""
        if self.kind == "package":
            return f"package {self.where}"
        return self.where or self.kind


EXPORT_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the names of tools, toolsets and agents are made of; all of a name must match."""

BUILT_IN = Origin("built-in")
"""The origin of what Handrail brings."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered tool or toolset.

    Attributes:
        name: what agent files call it by.
        kind: the namespace of the name.
        value: the very object that was registered.
        origin: where it comes from.

    Raises:
        RegistryError: the name is none.
    """

    name: str
    kind: Kind
    value: ToolDef | ToolsetDef
    origin: Origin

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.name), str) or EXPORT_NAME_PATTERN.fullmatch(self.name) is None:
            shown = shorten(repr(self.name), _LONGEST_SHOWN)
            raise RegistryError(
                f"{self.kind} {shown} ({self.origin}): a name is 1 to 64 letters, digits, '_' and '-'",
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
_LONGEST_SHOWN = 100


class ExportFault(NamedTuple):
    """Why something cannot be registered.

    Attributes:
        name: what it is called where it is exported, or its place if it has no name.
        fault: what is wrong with it, and the cure.
    """

    name: str
    fault: str

    def __str__(self) -> str:
        return f"{self.name}: {self.fault}"


@dataclass(frozen=True, slots=True)
class CollectedEntries:
    """What was exported in one place.

    Attributes:
        entries: what can be registered, each name once.
        offences: what cannot.
    """

    entries: tuple[Entry, ...] = ()
    offences: tuple[ExportFault, ...] = ()

    def plus(self, other: CollectedEntries) -> CollectedEntries:
        """What was exported in this place and in another."""
        return CollectedEntries((*self.entries, *other.entries), (*self.offences, *other.offences))

    def checked(self, what: str, *, module: str, hint: str = "") -> tuple[Entry, ...]:
        """The entries, if all can be registered.

        Raises:
            DiscoveryError: some cannot; the message, which begins with `what`, has all of them.
        """
        if self.offences:
            offenders = [offence.name for offence in self.offences]
            raise DiscoveryError(bullet_list(what, self.offences) + hint, module=module, offenders=offenders)
        return self.entries


class _Refused(Exception):
    """Something cannot be registered; its argument says why."""


def collect_entries(kind: Kind, value: object, origin: Origin, *, field: str = "") -> CollectedEntries:
    """The entries of a list, a tuple or a mapping of tools, or of toolsets.

    Args:
        kind: which of the two it holds.
        value: the list, tuple or mapping; what it holds is neither called nor changed.
        origin: where it stands.
        field: what it is called there; `TOOLS` or `TOOLSETS` if nothing is said.
    """
    field = field or _FIELDS[kind]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        wrong = [
            ExportFault(repr(key), f"a key of {field} is a name, a string")
            for key, _ in pairs
            if not isinstance(key, str)
        ]
        found = exported_items(kind, [(key, item) for key, item in pairs if isinstance(key, str)], origin)
        return CollectedEntries(found.entries, (*wrong, *found.offences))
    if isinstance(value, list | tuple):
        return exported_items(kind, [(None, item) for item in cast("Sequence[object]", value)], origin)
    described = "None" if value is None else f"of type {type(value).__name__}"
    fault = f"is {described}, but must be a list, tuple or dict; write {field} = [] for none"
    return CollectedEntries(offences=(ExportFault(field, fault),))


def exported_items(kind: Kind, items: Iterable[tuple[str | None, object]], origin: Origin) -> CollectedEntries:
    """The entries of what is exported one by one. A name that comes a second time is an offence."""
    entries: dict[str, Entry] = {}
    offences: list[ExportFault] = []
    for place, (key, item) in enumerate(items, start=1):
        try:
            entry = _entry(kind, key, item, origin)
        # A broken item does not hide the others: its fault is reported with theirs.
        except Exception as error:  # noqa: BLE001 - a program's object, say a lazy proxy, may raise when looked at
            fault = f"cannot be looked at ({type(error).__name__}: {error_message(error).partition(chr(10))[0]})"
            text = str(error) if isinstance(error, _Refused | RegistryError) else fault
            offences.append(ExportFault(shorten(key or _name_for_messages(item, place), _LONGEST_SHOWN), text))
            continue
        if entry.name in entries:
            offences.append(ExportFault(entry.name, f"is there twice as a {kind}; give one of them another name"))
        # The first one stays registered, so that names which refer to it are not reported as missing too.
        entries.setdefault(entry.name, entry)
    return CollectedEntries(tuple(entries.values()), tuple(offences))


def bullet_list(what: str, faults: Sequence[object]) -> str:
    """A message of one fault on one line, or of several, one a line."""
    return f"{what}: {faults[0]}" if len(faults) == 1 else "\n  - ".join((f"{what}:", *map(str, faults)))


def factory_fault(factory: ToolsetFactory) -> str | None:
    """What keeps a factory from being called with a run context, with the cure; `None` if nothing does."""
    function = cast("object", factory.function)
    if isinstance(function, type) or not callable(function):
        return f"{_described(function)} cannot be a factory; write a function, def make(ctx)"
    try:
        fault = calling_fault(function, (RunContext,), {}) or return_fault(function, (AbstractToolset, Section))
    except Exception:  # noqa: BLE001 - annotations are the program's own expressions, and may raise anything
        return None
    cure = "a factory takes the run context and returns a toolset: write def make(ctx)"
    return fault and f"the factory {factory.qualname} {fault}; {cure}"


def _entry(kind: Kind, key: str | None, item: object, origin: Origin) -> Entry:
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
    described = _described(item)
    if isinstance(item, PydanticTool | Tool):
        tool: ToolDef = cast("Any", item)  # whatever its parameters are
        return tool
    if _is_toolset(item) or (callable(item) and _makes_toolset(item)):
        raise _Refused(f"is {described}, which is a toolset; put it in TOOLSETS, and name it in `toolsets:`")
    # Other objects that can be called have no name or no annotations.
    if not isinstance(item, FunctionType | MethodType) or item.__name__ == "<lambda>":
        raise _Refused(f"is {described}, {_CURES['tool']}")
    try:
        made: Tool[Any, Any] = function_tool(item, {})
    except ToolSignatureError as error:
        separator = " " if len(error.faults) == 1 else "\n      "
        raise _Refused(f"cannot be a tool:{''.join(f'{separator}{fault}' for fault in error.faults)}") from error
    except PromptValidationError as error:  # its name, or its docstring
        raise _Refused(f"cannot be a tool: {error}") from error
    return made


def _toolset(item: object) -> ToolsetDef:
    described = _described(item)
    if _is_toolset(item) and not isinstance(item, ToolsetFactory):
        return cast("ToolsetDef", item)
    if isinstance(item, PydanticTool | Tool):
        raise _Refused(f"is {described}; put it in TOOLS, and name it in `tools:`")
    if not isinstance(item, ToolsetFactory) and (not callable(item) or isinstance(item, type | AbstractAgent)):
        raise _Refused(f"is {described}, {_CURES['toolset']}")
    factory = item if isinstance(item, ToolsetFactory) else ToolsetFactory(cast("Any", item))
    if fault := factory_fault(factory):
        raise _Refused(f"is not a toolset: {fault}. If it is a tool, put it in TOOLS, and name it in `tools:`")
    return factory


def _is_toolset(item: object) -> bool:
    return isinstance(item, AbstractToolset | Section | ToolsetFactory | AgentReference)


def _makes_toolset(function: Callable[..., object]) -> bool:
    """Whether a function is annotated to return a toolset, and so is a factory."""
    try:
        returned = returned_type(function)
    except Exception:  # noqa: BLE001 - as in `factory_fault`
        return False
    kind = get_origin(returned) or returned
    return isinstance(kind, type) and issubclass(kind, AbstractToolset | Section)


def _toolset_name(toolset: ToolsetDef) -> str:
    """What a toolset in a list calls itself."""
    if isinstance(toolset, Section):
        return toolset.key
    if isinstance(toolset, AgentReference):
        return toolset.name
    factory = toolset.function if isinstance(toolset, ToolsetFactory) else None
    name = getattr(factory, "__name__", None) if isinstance(toolset, ToolsetFactory) else toolset.id
    if not isinstance(name, str) or name == "<lambda>":
        raise _Refused(
            f"is {_described(toolset)} without an id or a name; write TOOLSETS = {{'name': ...}}, or give it one"
        )
    return name


def _name_for_messages(item: object, place: int) -> str:
    """What something without a key is called in a message: its name, or its place in the list."""
    try:
        name = getattr(item, "__name__", None) or getattr(item, "name", None) or getattr(item, "id", None)
    except Exception:  # noqa: BLE001 - as where it is looked at
        name = None
    return name if isinstance(name, str) and name.strip() else f"item {place}"


def _described(item: object) -> str:
    if item is None:
        return "None"
    return f"the class {item.__name__}" if isinstance(item, type) else f"of type {type(item).__name__}"


def error_message(error: BaseException) -> str:
    """The message of an error; its class may fail to say one."""
    try:
        return str(error).strip() or "no message"
    except Exception as failed:  # noqa: BLE001 - a program's class may raise anything here
        return f"its message cannot be had, because __str__ raises {type(failed).__name__}"


_PROGRAM = Origin("program")

_MOST_LISTED = 600  # bytes of names


class PackageExport(NamedTuple):
    """The name of an entry that is not made yet: that of an installed package, say.

    Attributes:
        name: what agent files call it by.
        kind: the namespace of the name.
        origin: where it comes from.
        load: makes the entry, the same one each time; raises `DiscoveryError` if it cannot.
    """

    name: str
    kind: Kind
    origin: Origin
    load: Callable[[], Entry]


class Namespace(Mapping[str, Entry]):
    """One namespace of a registry. All names are known; an offer is loaded when it is looked up."""

    def __init__(self, held: Iterable[Entry | PackageExport]) -> None:
        self._held: dict[str, Entry | tuple[PackageExport, ...]] = {}
        for item in held:
            other = self._held.get(item.name, ())
            if isinstance(item, Entry):
                self._held[item.name] = item
            # An entry of the project takes precedence over offers of installed packages, in whatever order they come.
            elif not isinstance(other, Entry):
                self._held[item.name] = (*other, item)

    def __getitem__(self, name: str) -> Entry:
        """The entry of that name.

        Raises:
            DiscoveryError: an installed package offers it, and it cannot be loaded; or several offer it.
        """
        held = self._held[name]
        if isinstance(held, Entry):
            return held
        if len(held) == 1:
            return held[0].load()
        origins = sorted(str(offer.origin) for offer in held)
        raise DiscoveryError(
            f"the {held[0].kind} {name} comes from {' and from '.join(origins)}, and it is not clear which is meant; "
            "uninstall one of them, or export the one that is meant in tools.py under another name",
            module=held[0].origin.where,
            offenders=(name,),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, name: object) -> bool:  # else it would be loaded
        return name in self._held


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Registry:
    """Tools and toolsets by name. Made by `Registry.of` or `Registry.of_python`; it never changes.

    Attributes:
        held: what was registered, tools and toolsets, in its order.
        tools: the tools by name. To look one up raises `DiscoveryError` if it is offered by a package and broken, or
            by several.
        toolsets: the toolsets by name, in the same way.

    Raises:
        RegistryError: two entries of one kind have one name; the message has all of them.
    """

    held: tuple[Entry | PackageExport, ...] = ()
    tools: Mapping[str, Entry] = field(init=False)
    toolsets: Mapping[str, Entry] = field(init=False)

    def __post_init__(self) -> None:
        _check(self.held)
        object.__setattr__(self, "tools", Namespace(item for item in self.held if item.kind == "tool"))
        object.__setattr__(self, "toolsets", Namespace(item for item in self.held if item.kind == "toolset"))

    @classmethod
    def of(cls, entries: Iterable[Entry], *, offers: Iterable[PackageExport] = ()) -> Registry:
        """A registry of entries, and of what could be loaded.

        Raises:
            RegistryError: two of one kind have one name; the message has all of them.
        """
        return cls(_once((*entries, *offers)))

    @classmethod
    def of_python(cls, *, tools: object = (), toolsets: object = ()) -> Registry:
        """A registry of what a program has at hand.

        Args:
            tools: functions and tools, as a list, a tuple, or a dict by name; what `TOOLS` of a module may be.
            toolsets: toolsets, sections and factories in the same way; what `TOOLSETS` may be.

        Raises:
            DiscoveryError: some cannot be registered; the message has all of them.
        """
        found = collect_entries("tool", tools, _PROGRAM, field="tools").plus(
            collect_entries("toolset", toolsets, _PROGRAM, field="toolsets")
        )
        what = "these tools and toolsets of the program cannot be registered"
        return cls(found.checked(what, module="program"))

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries that were registered as such, tools and toolsets, in their order; without `offers`."""
        return tuple(item for item in self.held if isinstance(item, Entry))

    @property
    def offers(self) -> tuple[PackageExport, ...]:
        """What installed packages offer."""
        return tuple(item for item in self.held if isinstance(item, PackageExport))


def _once(held: Iterable[Entry | PackageExport]) -> tuple[Entry | PackageExport, ...]:
    # By identity: two equal entries from different places are a conflict, which `_check` reports.
    return tuple({id(item): item for item in held}.values())


def _check(held: tuple[Entry | PackageExport, ...]) -> None:
    """Refuse names of two entries; offers yield to entries, and to each other when a name of several is asked for."""
    origins: dict[tuple[str, Kind], list[str]] = defaultdict(list)
    for item in held:
        if isinstance(item, Entry):
            origins[item.name, item.kind].append(str(item.origin))
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
    """An agent file with what it names.

    Attributes:
        file: the agent file.
        tools: what its `tools:` names, in its order.
        toolsets: what its `toolsets:` names, in its order.
    """

    file: AgentFile
    tools: tuple[Entry, ...] = ()
    toolsets: tuple[Entry, ...] = ()


_Fault = tuple[str, str, DiscoveryError | None]
"""A name that cannot be used, why, and what it comes from."""


def resolve(file: AgentFile, registry: Registry) -> ResolvedAgent:
    """The entries that an agent file names.

    Raises:
        ResolutionError: some names are not registered, or what they name cannot be loaded or called; the message has
            all of them.
    """
    faults: list[_Fault] = []
    tools = tuple(_found("tool", file.tools, registry, faults))
    toolsets = tuple(_found("toolset", file.toolsets, registry, faults))
    if faults:
        where = f" ({file.path})" if file.path is not None else ""
        raise ResolutionError(
            bullet_list(f"agent {file.name}{where} names what it cannot have", [words for _, words, _ in faults]),
            agent=file.name,
            names=[name for name, _, _ in faults],
        ) from next((cause for _, _, cause in faults if cause is not None), None)
    return ResolvedAgent(file, tools, toolsets)


def _found(kind: Kind, names: Sequence[str], registry: Registry, faults: list[_Fault]) -> Iterator[Entry]:
    """The entries of one field; what is wrong with the others goes to the faults."""
    there = registry.tools if kind == "tool" else registry.toolsets
    other = registry.toolsets if kind == "tool" else registry.tools
    for name in names:
        if name not in there:
            faults.append((name, _unknown(kind, name, there, other), None))
            continue
        try:
            entry = there[name]
        except DiscoveryError as error:
            faults.append((name, f"`{kind}s:` has {name!r}: {error}", error))
            continue
        fault = factory_fault(entry.value) if isinstance(entry.value, ToolsetFactory) else None
        if fault is not None:
            faults.append((name, f"`{kind}s:` has {name!r}: {entry.label}: {fault}", None))
        yield entry


def _unknown(kind: Kind, name: str, there: Mapping[str, Entry], other: Mapping[str, Entry]) -> str:
    fault = f"`{kind}s:` has {shorten(repr(name), _LONGEST_SHOWN)}, but that {kind} does not exist."
    if name in other:
        moved: Kind = "toolset" if kind == "tool" else "tool"
        fault += f" A {moved} of that name exists; move it to `{moved}s:`."
    near = nearest(name, there)
    if near is not None:
        fault += f" Did you mean {near!r}?"
    listed = enumerated(sorted(there), limit=_MOST_LISTED, near=name) or "none"
    return f"{fault} Available {kind}s: {listed}; a module exports what its {kind.upper()}S lists."
