"""What a module, a package or a program exports, made into entries; and what of it cannot be registered, and why.

A list, a tuple or a mapping holds tools (`TOOLS`) or toolsets (`TOOLSETS`). Every offender is found, not only one.

- A tool is registered under its own name, as the model sees it; a key that is another name is an offence.
- A plain function becomes a tool here, once, as by the decorator `tool`; what cannot be one is an offence.
- A toolset is registered under its key; in a list under its `id`, a section's key, or the name of its factory.

What is certain is taken from the object itself, or from what a function is annotated to return. A function of which
neither is certain, such as `def search(ctx):`, is either; then it counts where it is exported.

| object | is |
|---|---|
| a `Tool` of PydanticAI or of Handrail | a tool |
| a toolset of PydanticAI, a section, a factory with its settings, an agent by its name | a toolset |
| a function that is annotated to return a toolset or a section, also `None` or awaited | a factory |
| a function that is annotated to return something else | a tool |
| a function that cannot be called with one argument | a tool |
| any other function, or object that can be called | either |
| a class, a module, an agent of PydanticAI, what cannot be called | neither |

Nothing is registered that a module does not list, so a `tools.py` without `TOOLS` exports nothing, whatever it defines.
What modules define and do not export is named in the message about a name that is not registered.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FunctionType, ModuleType, NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.toolsets import AbstractToolset

from handrail.adapters.pydantic_ai.foreign.arguments import check_parameters, functions_of
from handrail.agents.error_text import error_message
from handrail.agents.exports.entries import AgentReference, Entry, Kind, Origin, ToolDef, ToolsetDef, ToolsetFactory
from handrail.errors import SchemaError, ToolSignatureError
from handrail.prompt import Section, Tool
from handrail.prompt.function_tools import ToolMethod, function_tool
from handrail.prompt.signature import calling_fault, returned_type
from handrail.serde.formatting import enumerated, shorten

ExportKind = Literal["tool", "toolset", "factory", "either", "neither"]
"""What an object is."""

_Verdict = Literal["tool", "factory", "either"]

AnyFunction = Callable[..., object]
"""A function, of which it is not known what it takes."""

_INSTANCES: tuple[tuple[type[Any] | tuple[type[Any], ...], ExportKind, str, str], ...] = (
    ((PydanticTool, Tool), "tool", "a tool", ""),
    (AbstractToolset, "toolset", "a toolset", ""),
    (Section, "toolset", "a section, which is a toolset", ""),
    (ToolsetFactory, "toolset", "a factory of toolsets", ""),
    (AgentReference, "toolset", "an agent, which is a toolset", ""),
    (AbstractAgent, "neither", "an agent", "export its functions, or write an agent file and name it in `toolsets:`"),
    (ModuleType, "neither", "a module", "export what is in it"),
)

EXPORT_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the names of tools, toolsets and agents are made of; all of a name must match."""

Keyed = tuple[str | None, object]
"""What is exported, with its key; in a list without one."""

_NO_OBJECT = "is a method without its object; export that of an object, as shop.charge"

_LONGEST_SHOWN = 100

_FIELDS: Mapping[Kind, str] = {"tool": "TOOLS", "toolset": "TOOLSETS"}

_MOST_LISTED = 300  # bytes of names

_LISTS: Mapping[Kind, tuple[str, ...]] = {"tool": ("TOOLS", "__all__"), "toolset": ("TOOLSETS",)}


@dataclass(frozen=True, slots=True)
class Classification:
    """What an object is, as far as that can be known without calling it.

    Attributes:
        what: the kind of thing.
        words: the same for a message: `a toolset (FunctionToolset)`, `a class`, `a constant of type int`.
        cure: what to export instead; empty if that depends on where it is exported.
    """

    what: ExportKind
    words: str
    cure: str = ""


def classify(value: object) -> Classification:
    """What an object is. It is neither called nor changed."""
    if isinstance(value, type):
        return _class(value)
    for kind, what, words, cure in _INSTANCES:
        if isinstance(value, kind):
            return Classification(what, f"{words} ({type(value).__name__})", cure)
    if value is None:
        return Classification("neither", "None")
    if not callable(value):
        return Classification("neither", f"a constant of type {type(value).__name__}")
    return _function(value)


def factory_fault(function: AnyFunction) -> str | None:
    """What keeps a function from being called as a factory, with the cure; `None` if nothing does."""
    fault = _calling_fault(function)
    if fault is None and _verdict(_returned(function)) == "tool":
        fault = f"is annotated to return {_annotation_name(_returned(function))}, which is not a toolset"
    if fault is None:
        return None
    name = getattr(function, "__name__", "")
    shown = name if isinstance(name, str) and name.isidentifier() else "make"
    return f"{fault}; a factory takes the run context and returns a toolset: write def {shown}(ctx)"


def _class(kind: type[Any]) -> Classification:
    if issubclass(kind, AbstractToolset | Section):
        return Classification("neither", f"a class of toolsets ({kind.__name__})", "export an instance, or a factory")
    if issubclass(kind, PydanticTool | Tool):
        return Classification("neither", f"a class of tools ({kind.__name__})", "export an instance")
    return Classification("neither", f"a class ({kind.__name__})", "export an instance, or a function")


def _function(function: AnyFunction) -> Classification:
    verdict = _verdict(_returned(function))
    if verdict == "factory":
        return Classification("factory", "a factory of toolsets, by its annotation")
    described = "a function"
    if not inspect.isroutine(function):
        described = f"an object that can be called ({type(cast('object', function)).__name__})"
    return Classification("either" if verdict == "either" and _calling_fault(function) is None else "tool", described)


def _calling_fault(function: AnyFunction) -> str | None:
    try:
        return calling_fault(function, (RunContext,), {})
    except Exception:  # noqa: BLE001 - annotations are the program's own expressions, and may raise anything
        return None


def _returned(function: AnyFunction) -> object:
    try:
        return returned_type(function)
    except Exception:  # noqa: BLE001 - as above
        return Any


def _verdict(annotation: object) -> _Verdict:
    """What a function is that returns what is annotated so."""
    arguments = get_args(annotation)
    kind = get_origin(annotation) or annotation
    if kind is Union or kind is UnionType:
        # A function that returns a toolset or a tool, by its annotation, counts where it is exported.
        verdicts: set[_Verdict] = {_verdict(member) for member in arguments if member is not NoneType}
        return verdicts.pop() if len(verdicts) == 1 else "either"
    if kind is Any or kind is object or not isinstance(kind, type):
        return "either"
    if issubclass(kind, Awaitable):
        return _verdict(arguments[-1]) if arguments else "either"
    return "factory" if issubclass(kind, AbstractToolset | Section) else "tool"


def _annotation_name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


@dataclass(frozen=True, slots=True)
class ExportFault:
    """Why something cannot be registered.

    Attributes:
        name: what it is called where it is exported, or a description if it has no name.
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
            ExportFault(repr(key), f"a key of {field} is a name, a string") for key, _ in pairs if not _is_text(key)
        ]
        found = exported_items(kind, [(key, item) for key, item in pairs if isinstance(key, str)], origin)
        return CollectedEntries(found.entries, (*wrong, *found.offences))
    if isinstance(value, list | tuple):
        return exported_items(kind, [(None, item) for item in cast("Sequence[object]", value)], origin)
    cure = f"; write {field} = [] for none" if value is None else ""
    if isinstance(name := getattr(value, "__name__", None), str) and name.isidentifier():
        cure = f"; write {field} = [{name}]"
    return CollectedEntries(
        offences=(ExportFault(field, f"is {_described(value)}, but must be a list, tuple or dict{cure}"),)
    )


def exported_items(kind: Kind, items: Iterable[Keyed], origin: Origin) -> CollectedEntries:
    """The entries of what is exported one by one. A name that comes a second time is an offence."""
    entries: dict[str, Entry] = {}
    offences: list[ExportFault] = []
    for place, (key, item) in enumerate(items, start=1):
        try:
            entry = _entry(kind, key, item, origin)
        # A broken item does not hide the others: its fault is reported with theirs.
        except Exception as error:  # noqa: BLE001 - a program's object, say a lazy proxy, may raise when looked at
            fault = f"cannot be looked at ({type(error).__name__}: {_first_line(error)})"
            text = str(error) if isinstance(error, _Refused) else fault
            offences.append(ExportFault(_shown_key(key) or _name_for_messages(item, place), text))
            continue
        if entry.name in entries:
            offences.append(ExportFault(entry.name, f"is there twice as a {kind}; give one of them another name"))
        # The first one stays registered, so that names which refer to it are not reported as missing too.
        entries.setdefault(entry.name, entry)
    return CollectedEntries(tuple(entries.values()), tuple(offences))


def bullet_list(what: str, faults: Sequence[object]) -> str:
    """A message of one fault on one line, or of several, one a line."""
    return f"{what}: {faults[0]}" if len(faults) == 1 else "\n  - ".join((f"{what}:", *map(str, faults)))


def _entry(kind: Kind, key: str | None, item: object, origin: Origin) -> Entry:
    if kind == "tool":
        tool = _tool(item)
        name = _checked_tool_name(tool, key)
        if isinstance(tool, PydanticTool):
            _check_parameters(tool, "its parameters have no schema")
        return Entry(name, kind, tool, origin)
    toolset = _toolset(item)
    name = _checked(_toolset_name(toolset) if key is None else key)
    for tool in functions_of(toolset) if isinstance(toolset, AbstractToolset) else ():
        _check_parameters(tool, f"its function {tool.name} has parameters without a schema")
    return Entry(name, kind, toolset, origin)


def _check_parameters(tool: PydanticTool[Any], fault: str) -> None:
    try:
        check_parameters(tool)
    except SchemaError as error:
        raise _Refused(f"{fault}: {error}") from error


def _tool(item: object) -> ToolDef:
    if isinstance(item, PydanticTool | Tool):
        tool: ToolDef = cast("Any", item)  # whatever its parameters are
        return tool
    if isinstance(item, ToolMethod):
        raise _Refused(_NO_OBJECT)
    found = classify(item)
    if found.what in {"toolset", "factory"}:
        raise _Refused(f"is {found.words}; put it in TOOLSETS, and name it in `toolsets:`")
    if found.what == "neither":
        raise _Refused(f"is {found.words}, and no tool; {found.cure or 'export functions and Tool objects'}")
    return _tool_of_function(cast("AnyFunction", item), found.words)


def _tool_of_function(function: AnyFunction, words: str) -> ToolDef:
    name = getattr(function, "__name__", None)
    if inspect.isbuiltin(function):
        raise _Refused(f"is built into Python ({name}); wrap it in a function whose parameters have annotations")
    if not isinstance(name, str) or not inspect.isroutine(function):
        raise _Refused(f"is {words}, which has no name; write Tool(..., name='...'), or a function with def")
    if name == "<lambda>":
        raise _Refused("is a lambda, which has no name; write a function with def")
    try:
        made: Tool[Any, Any] | ToolMethod = function_tool(function, {})
    except ToolSignatureError as error:
        separator = " " if len(error.faults) == 1 else "\n      "
        faults = "".join(f"{separator}{fault}" for fault in error.faults)
        raise _Refused(f"cannot be a tool:{faults}{_cure_by_pydantic_ai(function, name)}") from error
    if isinstance(made, ToolMethod):
        raise _Refused(_NO_OBJECT)
    return made


def _cure_by_pydantic_ai(function: AnyFunction, name: str) -> str:
    """What to export for PydanticAI to read a function; empty if it cannot either."""
    try:
        check_parameters(PydanticTool(function))
    except Exception:  # noqa: BLE001 - PydanticAI looks at annotations, which may raise anything
        return ""
    return f"\n    PydanticAI can read its parameters: export pydantic_ai.Tool({name})"


def _checked_tool_name(tool: ToolDef, key: str | None) -> str:
    name = _checked(tool.name)
    if key is not None and key != name:
        raise _Refused(
            f"is exported as {key!r}, but the tool is called {name!r}, and models see its own name; make them "
            f"the same, e.g. by Tool(function, name={key!r})"
        )
    return name


def _toolset(item: object) -> ToolsetDef:
    if isinstance(item, ToolsetFactory):
        return _checked_factory(item)
    if isinstance(item, AbstractToolset | Section | AgentReference):
        return cast("ToolsetDef", item)
    found = classify(item)
    if found.what == "neither":
        raise _Refused(f"is {found.words}, and no toolset; {found.cure or 'export a toolset, a section or a factory'}")
    if isinstance(item, PydanticTool | Tool):
        raise _Refused(f"is {found.words}; put it in TOOLS, and name it in `tools:`")
    return _checked_factory(ToolsetFactory(cast("Any", item)))  # what can be called, and is checked to be a factory


def _checked_factory(factory: ToolsetFactory) -> ToolsetFactory:
    fault = fault_of_factory(factory)
    if fault is not None:
        raise _Refused(f"is not a toolset: {fault}. If it is a tool, put it in TOOLS, and name it in `tools:`")
    return factory


def fault_of_factory(factory: ToolsetFactory) -> str | None:
    """What keeps a factory from being called with a run context, with the cure; `None` if nothing does."""
    function = cast("object", factory.function)
    if isinstance(function, type):
        return f"{classify(function).words} cannot be a factory; write a function, def make(ctx)"
    if not callable(function):
        return f"{classify(function).words} cannot be called; a factory is a function, def make(ctx)"
    fault = factory_fault(function)
    return None if fault is None else f"the factory {factory.qualname} {fault}"


def _toolset_name(toolset: ToolsetDef) -> str:
    """What a toolset in a list calls itself."""
    if isinstance(toolset, Section):
        return toolset.key
    if isinstance(toolset, AgentReference):
        return toolset.name
    if isinstance(toolset, ToolsetFactory):
        name = getattr(toolset.function, "__name__", None)
        if not isinstance(name, str) or name == "<lambda>":
            raise _Refused("is a factory without a name; write TOOLSETS = {'name': ...}")
        return name
    try:
        name = toolset.id
    except Exception as error:  # a toolset of a program may compute its id
        raise _Refused(f"cannot say its id ({type(error).__name__}: {_first_line(error)})") from error
    if name is None:
        raise _Refused(
            f"is a {type(toolset).__name__} without an id; write TOOLSETS = {{'name': ...}}, or give it an id"
        )
    return name


def _checked(name: object) -> str:
    if not isinstance(name, str) or EXPORT_NAME_PATTERN.fullmatch(name) is None:
        shown = shorten(repr(name), _LONGEST_SHOWN)
        raise _Refused(
            f"has the name {shown}; a name is 1 to 64 letters, digits, '_' and '-' (^[A-Za-z0-9_-]{{1,64}}$)"
        )
    return name


def _shown_key(key: str | None) -> str:
    return shorten(key or "", _LONGEST_SHOWN)


def _name_for_messages(item: object, place: int) -> str:
    """What something without a key is called in a message: its name, or its place in the list."""
    with suppress(Exception):  # as where it is looked at
        if isinstance(item, str | int | float):
            return shorten(repr(item), _LONGEST_SHOWN)
        name = _name_of(item)
        if isinstance(name, str) and name.strip():
            return shorten(name, _LONGEST_SHOWN)
    return f"item {place}"


def _name_of(item: object) -> object:
    if isinstance(item, PydanticTool | Tool):
        return item.name
    if isinstance(item, AbstractToolset):
        return item.id
    return getattr(item.function if isinstance(item, ToolsetFactory) else item, "__name__", None)


def _described(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _is_text(key: object) -> bool:
    return isinstance(key, str)


def _first_line(error: Exception) -> str:
    return error_message(error).partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Definitions:
    """The functions and tools that a module defines.

    Attributes:
        where: the file of the module.
        names: the variable of each, by the name that agent files would have for it; private functions are left out.
        lists: which of `TOOLS`, `TOOLSETS` and `__all__` it has.
    """

    where: str
    names: Mapping[str, str]
    lists: frozenset[str]


def unexported_definitions(module: ModuleType, where: str) -> Definitions:
    """What a module defines; it and what it holds are neither called nor changed."""
    names: dict[str, str] = {}
    for variable, value in vars(module).items():
        kind = cast("type[object]", type(value))  # not `isinstance`: a lazy proxy may raise when it is looked at
        if issubclass(kind, FunctionType):
            if value.__module__ == module.__name__ and not variable.startswith("_"):
                names[variable] = variable
        elif issubclass(kind, Tool | PydanticTool):
            names[str(value.name)] = variable
    lists = (name for names in _LISTS.values() for name in names)
    return Definitions(where, names, frozenset(name for name in lists if name in vars(module)))


def export_hints(kind: Kind, wanted: Sequence[str], defined: Iterable[Definitions]) -> dict[str, str]:
    """The line to add to each module that defines what an agent names, and does not export it.

    Args:
        kind: the namespace in which the names were looked up.
        wanted: the names that were not found.
        defined: what the modules of the project define.

    Returns:
        A sentence for each module, by its file.
    """
    hints: dict[str, str] = {}
    for module in defined:
        found = [module.names[name] for name in wanted if name in module.names]
        if found:
            hints[module.where] = _hint(kind, found, module)
    return hints


def _hint(kind: Kind, found: Sequence[str], module: Definitions) -> str:
    (own, *others) = _LISTS[kind]
    there = next((name for name in (own, *others) if name in module.lists), None)
    named = ", ".join(found)
    if there is not None:
        them = "it" if len(found) == 1 else "them"
        return f"{module.where} defines {named}, and its {there} does not list {them}; add {them} to {there}."
    defines = enumerated(tuple(module.names.values()), limit=_MOST_LISTED, wanted=found[0])
    return f"{module.where} defines {defines}, and has no {own}; add the line: {own} = [{named}]"
