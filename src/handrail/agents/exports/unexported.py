"""What the modules of a project define and do not export: for the message about a name that is not registered.

Nothing is registered that a module does not list, so a `tools.py` without `TOOLS` exports nothing, whatever it defines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import cast

from pydantic_ai import Tool as PydanticTool

from handrail.agents.exports.entries import Kind
from handrail.prompt import Tool
from handrail.serde.formatting import enumerated

_MOST_LISTED = 300  # bytes of names
_LISTS: Mapping[Kind, tuple[str, ...]] = {"tool": ("TOOLS", "__all__"), "toolset": ("TOOLSETS",)}


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


def definitions_of(module: ModuleType, where: str) -> Definitions:
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
