"""Resources: what handlers need beside their parameters, bound by type, built when asked for, closed at the end."""

from __future__ import annotations

from handrail.errors import (
    CircularResourceError,
    DuplicateBindingError,
    ProviderError,
    ResourceError,
    ResourceUseError,
    UnboundResourceError,
    WrongResourceError,
)
from handrail.resources.binding import Binding, Resolver, Resource, Scope
from handrail.resources.context import CallScope, ResourceContext, ResourceRegistry
from handrail.resources.copied import Copied
from handrail.transaction import Snapshotable

__all__ = [
    "Binding",
    "CallScope",
    "CircularResourceError",
    "Copied",
    "DuplicateBindingError",
    "ProviderError",
    "Resolver",
    "Resource",
    "ResourceContext",
    "ResourceError",
    "ResourceRegistry",
    "ResourceUseError",
    "Scope",
    "Snapshotable",
    "UnboundResourceError",
    "WrongResourceError",
]
