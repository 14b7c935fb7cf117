"""The filesystems that the tools of a run find, behind the path filter of the run, wherever they were bound.

That is the `Filesystem`, whatever makes it, and each filesystem that is bound under a type of its own, as the
`HostFilesystem` of a shell. What a provider makes under another type than `Filesystem` is the program's own affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast, runtime_checkable

from handrail.filesystem import Filesystem
from handrail.prompt import PromptTemplate
from handrail.resources import Binding, ResourceRegistry
from handrail.resources.binding import GivenInstance, Resolver

Behind = Callable[[Filesystem], Filesystem]
"""Puts a filesystem behind a filter."""


@runtime_checkable
class _Unfiltered(Filesystem, Protocol):
    """The type under which a filesystem that a provider makes is bound: its context makes and closes that one."""


def bound_resources(template: PromptTemplate[Any], given: ResourceRegistry) -> ResourceRegistry:
    """All that the tools of a template find: what its sections bring, and before that what the program binds."""
    registry = template.registry
    for root in template.tree:
        for placed in root.walk():
            registry = registry.merge(placed.section.registry)
    return registry.merge(given)


def given_filesystem(bound: ResourceRegistry) -> Filesystem | None:
    """The `Filesystem` that the tools find, if it is there already and no provider makes it."""
    given = (each.provider for each in bound if each.protocol is Filesystem)
    found = next((provider.value for provider in given if isinstance(provider, GivenInstance)), None)
    return found if isinstance(found, Filesystem) else None


def behind_filter(bound: ResourceRegistry, behind: Behind) -> ResourceRegistry:
    """What to bind so that the filesystems of a template are behind a filter; nothing if it has none.

    Args:
        bound: all that the tools find.
        behind: puts a filesystem behind the filter.
    """
    return ResourceRegistry.of(*(each for binding in bound for each in _behind(binding, behind)))


def _behind(binding: Binding[Any], behind: Behind) -> tuple[Binding[Any], ...]:
    if isinstance(binding.provider, GivenInstance):
        filesystem = _filtered(binding.provider.value, behind)
        return () if filesystem is None else (Binding.instance(binding.protocol, filesystem),)
    if binding.protocol is not Filesystem:
        return ()

    def provide(resources: Resolver) -> Filesystem | None:
        return _filtered(resources.get(_Unfiltered), behind)

    return (
        Binding(_Unfiltered, binding.provider, binding.scope, binding.eager),
        Binding(Filesystem, cast("Callable[[Resolver], Filesystem]", provide), binding.scope),
    )


def _filtered(filesystem: object, behind: Behind) -> Filesystem | None:
    """A filesystem behind a filter; `None` where a provider returns none."""
    return behind(filesystem) if isinstance(filesystem, Filesystem) else None
