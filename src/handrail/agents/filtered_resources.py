"""The filesystem that the tools of a run find, behind the path filter of the run, wherever it was bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast, runtime_checkable

from handrail.filesystem import Filesystem, PathFilter
from handrail.prompt import PromptTemplate
from handrail.resources import Binding, ResourceRegistry
from handrail.resources.binding import Given, Resolver


@runtime_checkable
class _Unfiltered(Filesystem, Protocol):
    """The type under which a filesystem that a provider makes is bound: its context makes and closes that one."""


def behind_filter(template: PromptTemplate[Any], given: ResourceRegistry, path_filter: PathFilter) -> ResourceRegistry:
    """What to bind so that the `Filesystem` of a template is behind a filter; nothing if it has none.

    Args:
        template: its sections bring resources.
        given: what the program binds, before what the sections bring.
        path_filter: which paths exist.
    """
    if not path_filter:
        return ResourceRegistry()
    registry = template.registry
    for root in template.tree:
        for placed in root.walk():
            registry = registry.merge(placed.section.registry)
    for binding in registry.merge(given):
        if binding.protocol is Filesystem:
            return ResourceRegistry.of(*_behind(binding, path_filter))
    return ResourceRegistry()


def _behind(binding: Binding[Any], path_filter: PathFilter) -> tuple[Binding[Any], ...]:
    if isinstance(binding.provider, Given):
        return (Binding.instance(Filesystem, _filtered(binding.provider.value, path_filter)),)

    def provide(resources: Resolver) -> Filesystem | None:
        return _filtered(resources.get(_Unfiltered), path_filter)

    return (
        Binding(_Unfiltered, binding.provider, binding.scope, binding.eager),
        Binding(Filesystem, cast("Callable[[Resolver], Filesystem]", provide), binding.scope),
    )


def _filtered(filesystem: object, path_filter: PathFilter) -> Filesystem | None:
    """A filesystem behind a filter; where a provider says that there is none, none."""
    return filesystem.filtered(path_filter) if isinstance(filesystem, Filesystem) else None
