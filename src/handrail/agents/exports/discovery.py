"""Finds the tools and toolsets that a module exports; nothing is registered that a module does not list.

| the module has | its tools | its toolsets |
|---|---|---|
| `TOOLS`: a list, tuple or dict | those in it; `__all__` does not count | |
| no `TOOLS`, but `__all__` | all that it names; each must be a tool | |
| `TOOLSETS`: a list, tuple or dict | | those in it |
| none of them | none | none |

`TOOLS = []` says that there are none, while `TOOLS = None` is an error. In `__all__` the names `TOOLS` and `TOOLSETS`
are passed over. `__init__.py` and `__main__.py` export nothing. Functions that are registered with an agent
(`@agent.tool`) are not exports of their module.

Installed packages offer tools and toolsets by the entry points `handrail.tools` and `handrail.toolsets`:

    [project.entry-points."handrail.toolsets"]
    refunds = "shop_tools.refunds:make_refunds"

The name of the entry point is the name of the entry; its value is a tool, a function, a toolset, a section or a factory
in a module of the package. A package is imported when one of its names is asked for, and not before: one that is broken
affects only agents that use it. A name that no agent file can have is passed over, and so are the entry points of a
package whose metadata cannot be read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import EntryPoint, distributions
from types import ModuleType
from typing import cast

from handrail.agents.error_text import error_message
from handrail.agents.exports.classify import (
    EXPORT_NAME_PATTERN,
    CollectedEntries,
    ExportFault,
    bullet_list,
    collect_entries,
    exported_items,
)
from handrail.agents.exports.entries import Entry, Kind, Origin
from handrail.agents.exports.importing import ProjectModule
from handrail.agents.exports.registry import PackageExport
from handrail.errors import DiscoveryError

_OURS = ("TOOLS", "TOOLSETS")
_HINT = "\n__all__ counts because there is no TOOLS; define TOOLS to choose tools, TOOLS = [] for none"

GROUPS: tuple[tuple[Kind, str], ...] = (("tool", "handrail.tools"), ("toolset", "handrail.toolsets"))
"""The groups of entry points, and what is in them."""


def discover(modules: Iterable[ProjectModule]) -> tuple[list[Entry], list[DiscoveryError]]:
    """The tools and toolsets of all modules, and a problem for each one that exports what cannot be registered.

    A module with a fault hides no other, and its error lists all that is wrong with it.
    """
    entries: list[Entry] = []
    problems: list[DiscoveryError] = []
    for found in modules:
        try:
            entries += exports(found.module, where=found.where)
        except DiscoveryError as problem:
            problems.append(problem)
    return entries, problems


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
        tools = collect_entries("tool", names["TOOLS"], origin)
    else:
        # `TOOLS` replaces `__all__` as a whole, so that a module can export names to Python without offering them to
        # agents.
        tools = _named_by_all(module, origin) if "__all__" in names else CollectedEntries()
    toolsets = collect_entries("toolset", names["TOOLSETS"], origin) if "TOOLSETS" in names else CollectedEntries()
    offences = (*tools.offences, *toolsets.offences)
    if offences:
        hint = _HINT if tools.offences and "TOOLS" not in names else ""
        raise DiscoveryError(
            bullet_list(f"{where} exports what cannot be registered", offences) + hint,
            module=where,
            offenders=[offence.name for offence in offences],
        )
    return (*tools.entries, *toolsets.entries)


def _named_by_all(module: ModuleType, origin: Origin) -> CollectedEntries:
    """The tools that `__all__` names; everything else in it is an offence."""
    listed: object = vars(module)["__all__"]
    if not isinstance(listed, list | tuple):
        kind = "None" if listed is None else f"of type {type(listed).__name__}"
        return CollectedEntries(offences=(ExportFault("__all__", f"is {kind}, but must be a list or tuple of names"),))
    items = cast("Sequence[object]", listed)
    counts = Counter(name for name in items if isinstance(name, str))
    offences = [ExportFault(repr(item), "is not a name") for item in items if not isinstance(item, str)]
    offences += [ExportFault(name, f"is in __all__ {count} times") for name, count in counts.items() if count > 1]
    offences += [
        ExportFault(name, "is in __all__, but not in the module") for name in counts if name not in vars(module)
    ]
    exported = [(name, vars(module)[name]) for name in counts if name in vars(module) and name not in _OURS]
    found = exported_items("tool", exported, origin)
    return CollectedEntries(found.entries, (*offences, *found.offences))


def package_offers() -> tuple[PackageExport, ...]:
    """What the installed packages offer, by package and name; nothing is imported."""
    return tuple(sorted(_offers(), key=lambda offer: (offer.kind, offer.origin.where, offer.name)))


def _offers() -> Iterator[PackageExport]:
    points = _points()
    for kind, group in GROUPS:
        for point in dict.fromkeys(points[group]):
            if EXPORT_NAME_PATTERN.fullmatch(point.name) is not None:
                # Cached, so that all agents get the same object, and a package that fails does so once.
                yield PackageExport(point.name, kind, _origin(point), cache(partial(_load, point, kind)))


def _points() -> Mapping[str, list[EntryPoint]]:
    """The entry points of each group; the first distribution of a name counts, as for an import."""
    points: dict[str, list[EntryPoint]] = {group: [] for _, group in GROUPS}
    seen: set[str] = set()
    for package in distributions():
        try:
            name = re.sub(r"[-_.]+", "-", package.name).lower()
            found = [point for point in package.entry_points if point.group in points]
        except Exception:  # noqa: BLE001, S112 - its metadata cannot be read, which harms no other package
            continue
        if name not in seen:
            seen.add(name)
            for point in found:
                points[point.group].append(point)
    return points


def _origin(point: EntryPoint) -> Origin:
    package = "of unknown name" if point.dist is None else point.dist.name
    return Origin("package", f"{package} (entry point {point.name})")


def _load(point: EntryPoint, kind: Kind) -> Entry:
    origin = _origin(point)
    try:
        value: object = point.load()
    # Ctrl-C during a slow import is the user's, and not a fault of the package.
    except KeyboardInterrupt:
        raise
    # A module may call `sys.exit` at its import, which must not end the process.
    except BaseException as error:
        text = error_message(error)
        raise DiscoveryError(
            f"the {kind} {point.name} cannot be loaded from {origin}, {point.value}: {type(error).__name__}: {text}",
            module=origin.where,
            offenders=(point.name,),
        ) from error
    found = exported_items(kind, [(point.name, value)], origin)
    if found.offences:
        raise DiscoveryError(
            bullet_list(f"{origin}, {point.value}, cannot be registered", found.offences),
            module=origin.where,
            offenders=(point.name,),
        )
    return found.entries[0]
