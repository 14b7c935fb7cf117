"""The package itself: its names, those that are imported late, and its version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module

import pytest

import handrail
from handrail import prompt
from handrail.lazy_exports import lazy_exports
from tests.wording import Wording


def test_the_decorator_is_a_name_of_the_package() -> None:
    """The very same as that of `handrail.prompt`."""
    assert handrail.tool is prompt.tool


def test_importing_the_package_imports_nothing_else() -> None:
    """The command line prints its version without pydantic."""
    program = "import sys, handrail\nassert 'pydantic' not in sys.modules\nassert 'tool' in handrail.__all__\n"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_name_is_imported_when_it_is_asked_for() -> None:
    """And asked for once: then the package has it."""
    program = (
        "import sys, handrail.store; assert 'handrail.store.sqlite.store' not in sys.modules; "
        "from handrail.store import SqliteStore; assert vars(handrail.store)['SqliteStore'] is SqliteStore; "
        "assert SqliteStore is sys.modules['handrail.store.sqlite.store'].SqliteStore"
    )
    subprocess.run((sys.executable, "-c", program), check=True, timeout=60)


@pytest.mark.parametrize("package", ["handrail.filesystem", "handrail.prompt", "handrail.store", "handrail.testing"])
def test_a_package_has_all_that_it_exports(package: str) -> None:
    """A name that is imported late is one of the package as any other."""
    face = import_module(package)
    names: list[str] = face.__all__
    assert all(getattr(face, name) is not None for name in names)


def test_a_name_that_is_not_exported_is_an_error(wording: Wording) -> None:
    """The one that Python has for it."""
    export: Callable[[str], object] = lazy_exports("handrail.store", {})
    with pytest.raises(AttributeError) as caught:
        export("PostgresStore")
    assert str(caught.value) == wording
