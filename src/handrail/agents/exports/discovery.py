"""Finds the tools and toolsets that a module exports; nothing is registered that a module does not list.

| the module has | its tools | its toolsets |
|---|---|---|
| `TOOLS`: a list, tuple or dict | those in it; `__all__` does not count | |
| no `TOOLS`, but `__all__` | all that it names; each must be a tool | |
| `TOOLSETS`: a list, tuple or dict | | those in it |
| none of them | none | none |

`TOOLS = []` says that there are none, while `TOOLS = None` is an error. In `__all__` the names `TOOLS` and `TOOLSETS`
are passed over. `__init__.py` and `__main__.py` export nothing; one that defines `TOOLS` or `TOOLSETS` is an error.
Functions that are registered with an agent (`@agent.tool`) are no exports of their module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import decode_source
from pathlib import Path
from symtable import symtable
from types import ModuleType
from typing import cast

from handrail.agents.exports.classify import Declared, Offence, bulleted, declared, declared_items
from handrail.agents.exports.entries import Entry, Origin
from handrail.agents.exports.importing import ProjectModule
from handrail.agents.exports.unexported import Definitions, definitions_of
from handrail.errors import DiscoveryError

_OURS = ("TOOLS", "TOOLSETS")
_HINT = "\n__all__ counts because there is no TOOLS; define TOOLS to choose tools, TOOLS = [] for none"


@dataclass(frozen=True, slots=True)
class Discovered:
    """What modules export.

    Attributes:
        entries: their tools and toolsets.
        problems: one for each module that exports what cannot be registered; it lists all of it.
        defined: what the modules define, exported or not.
    """

    entries: tuple[Entry, ...] = ()
    problems: tuple[DiscoveryError, ...] = ()
    defined: tuple[Definitions, ...] = ()


def discover(modules: Iterable[ProjectModule]) -> Discovered:
    """The tools and toolsets of all modules; a module with a fault hides no other."""
    entries: list[Entry] = []
    problems: list[DiscoveryError] = []
    defined: list[Definitions] = []
    for found in modules:
        defined.append(definitions_of(found.module, found.where))
        try:
            entries += exports(found.module, where=found.where)
        except DiscoveryError as problem:
            problems.append(problem)
    return Discovered(tuple(entries), tuple(problems), tuple(defined))


def passed_over(folder: Path, files: Iterable[Path]) -> tuple[DiscoveryError, ...]:
    """What is told of files that export nothing, and define `TOOLS` or `TOOLSETS` all the same; none is executed.

    Args:
        folder: the project folder.
        files: paths from the folder.
    """
    found = ((file, _defined(folder / file)) for file in files)
    return tuple(
        DiscoveryError(
            f"{file.as_posix()} defines {' and '.join(names)}, and is passed over, because {file.name} belongs to the "
            f"package of its folder; move what it exports to a file beside it, such as "
            f"{file.with_name('desk.py').as_posix()}",
            module=file.as_posix(),
            offenders=names,
        )
        for file, names in found
        if names
    )


def _defined(file: Path) -> tuple[str, ...]:
    """Which of the two names a file assigns at its top level; one that cannot be read is told when it is imported."""
    try:
        table = symtable(decode_source(file.read_bytes()), str(file), "exec")
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    there = set(table.get_identifiers())
    return tuple(name for name in _OURS if name in there and table.lookup(name).is_assigned())


def exports(module: ModuleType, *, where: str) -> tuple[Entry, ...]:
    """The tools and toolsets of one module, in its order.

    Args:
        module: the module; it and what it holds are neither called nor changed.
        where: its file, for messages and as the origin of the entries.

    Raises:
        DiscoveryError: it exports what cannot be registered; the message lists all of it.
    """
    names = vars(module)
    origin = Origin("module", where)
    if "TOOLS" in names:
        tools = declared("tool", names["TOOLS"], origin)
    else:
        tools = _named_by_all(module, origin) if "__all__" in names else Declared()
    toolsets = declared("toolset", names["TOOLSETS"], origin) if "TOOLSETS" in names else Declared()
    offences = (*tools.offences, *toolsets.offences)
    if offences:
        hint = _HINT if tools.offences and "TOOLS" not in names else ""
        raise DiscoveryError(
            bulleted(f"{where} exports what cannot be registered", offences) + hint,
            module=where,
            offenders=[offence.name for offence in offences],
        )
    return (*tools.entries, *toolsets.entries)


def _named_by_all(module: ModuleType, origin: Origin) -> Declared:
    """The tools that `__all__` names; everything else in it is an offence."""
    listed: object = vars(module)["__all__"]
    if not isinstance(listed, list | tuple):
        kind = "None" if listed is None else f"of type {type(listed).__name__}"
        return Declared(offences=(Offence("__all__", f"is {kind}, but must be a list or tuple of names"),))
    items = cast("Sequence[object]", listed)
    counts = Counter(name for name in items if isinstance(name, str))
    offences = [Offence(repr(item), "is no name") for item in items if not isinstance(item, str)]
    offences += [Offence(name, f"stands in __all__ {count} times") for name, count in counts.items() if count > 1]
    offences += [Offence(name, "is in __all__, but not in the module") for name in counts if name not in vars(module)]
    exported = [(name, vars(module)[name]) for name in counts if name in vars(module) and name not in _OURS]
    found = declared_items("tool", exported, origin)
    return Declared(found.entries, (*offences, *found.offences))
