"""The tools and toolsets that installed packages offer, by the entry points `handrail.tools` and `handrail.toolsets`.

    [project.entry-points."handrail.toolsets"]
    refunds = "shop_tools.refunds:make_refunds"

The name of the entry point is the name of the entry; its value is a tool, a function, a toolset, a section or a factory
in a module of the package. A package is imported when one of its names is asked for, and not before: one that is broken
harms nobody who does not use it. A name that no agent file can say is passed over, and so are the entry points of a
package whose metadata cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib.metadata import EntryPoint, distributions, entry_points

from handrail.agents.error_text import message_of
from handrail.agents.exports.classify import NAME, bulleted, declared_items
from handrail.agents.exports.entries import Entry, Kind, Origin
from handrail.agents.exports.registry import Offer
from handrail.errors import DiscoveryError

GROUPS: tuple[tuple[Kind, str], ...] = (("tool", "handrail.tools"), ("toolset", "handrail.toolsets"))
"""The groups of entry points, and what stands in them."""


def package_offers() -> tuple[Offer, ...]:
    """What the installed packages offer, by package and name; nothing is imported."""
    return tuple(sorted(_offers(), key=lambda offer: (offer.kind, offer.origin.where, offer.name)))


def _offers() -> Iterator[Offer]:
    for kind, group in GROUPS:
        for point in dict.fromkeys(_points(group)):
            if NAME.fullmatch(point.name) is not None:
                yield Offer(point.name, kind, _origin(point), cache(partial(_load, point, kind)))


def _points(group: str) -> Iterable[EntryPoint]:
    try:
        return entry_points(group=group)
    except Exception:  # noqa: BLE001 - one package whose metadata are broken fails all of them, with whatever it likes
        return tuple(_points_one_by_one(group))


def _points_one_by_one(group: str) -> Iterator[EntryPoint]:
    """The entry points of those packages that can be read; the first of a name counts, as for an import."""
    seen: set[str] = set()
    for package in distributions():
        try:
            name = re.sub(r"[-_.]+", "-", package.name).lower()
            points = tuple(package.entry_points)
        except Exception:  # noqa: BLE001, S112 - it is passed over
            continue
        if name not in seen:
            seen.add(name)
            yield from (point for point in points if point.group == group)


def _origin(point: EntryPoint) -> Origin:
    package = "of unknown name" if point.dist is None else point.dist.name
    return Origin("package", f"{package} (entry point {point.name})")


def _load(point: EntryPoint, kind: Kind) -> Entry:
    origin = _origin(point)
    try:
        value: object = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        told = message_of(error)
        raise DiscoveryError(
            f"the {kind} {point.name} cannot be loaded from {origin}, {point.value}: {type(error).__name__}: {told}",
            module=origin.where,
            offenders=(point.name,),
        ) from error
    found = declared_items(kind, [(point.name, value)], origin)
    if found.offences:
        raise DiscoveryError(
            bulleted(f"{origin}, {point.value}, cannot be registered", found.offences),
            module=origin.where,
            offenders=(point.name,),
        )
    return found.entries[0]
