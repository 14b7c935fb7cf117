"""Names that a package exports and imports when they are first asked for (PEP 562), because they cost much."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package that exports names of modules which are not loaded yet.

    Args:
        package: the name of the package.
        modules: the names that each of its modules has, with blanks between them.
    """

    def export(name: str) -> object:
        module = next((module for module, names in modules.items() if name in names.split()), None)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f".{module}", package), name)
        setattr(sys.modules[package], name, value)  # so that it is asked for once
        return value

    return export
