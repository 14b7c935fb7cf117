"""The filesystems that the tools of a run find, behind the path filter of the run, wherever they were bound.

That is the `Filesystem`, whatever makes it, and each filesystem that is bound under a type of its own, as the
`HostFilesystem` of a shell. What a provider makes under another type than `Filesystem` is the program's own affair.
"""

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
    """What to bind so that the filesystems of a template are behind a filter; nothing if it has none.

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
    bindings = (behind for binding in registry.merge(given) for behind in _behind(binding, path_filter))
    return ResourceRegistry.of(*bindings)


def _behind(binding: Binding[Any], path_filter: PathFilter) -> tuple[Binding[Any], ...]:
    if isinstance(binding.provider, Given):
        filesystem = _filtered(binding.provider.value, path_filter)
        return () if filesystem is None else (Binding.instance(binding.protocol, filesystem),)
    if binding.protocol is not Filesystem:
        return ()

    def provide(resources: Resolver) -> Filesystem | None:
        return _filtered(resources.get(_Unfiltered), path_filter)

    return (
        Binding(_Unfiltered, binding.provider, binding.scope, binding.eager),
        Binding(Filesystem, cast("Callable[[Resolver], Filesystem]", provide), binding.scope),
    )


def _filtered(filesystem: object, path_filter: PathFilter) -> Filesystem | None:
    """A filesystem behind a filter; where a provider says that there is none, none."""
    return filesystem.filtered(path_filter) if isinstance(filesystem, Filesystem) else None
