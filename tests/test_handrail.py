"""The package itself: its names, those that are imported late, and its version."""

from __future__ import annotations

import dataclasses
import pickle
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest

import handrail
from handrail import prompt
from handrail.errors import HandrailError
from handrail.lazy_exports import lazy_exports
from handrail.prompt import ToolResult
from handrail.resources import Binding, Scope
from handrail.session import Replace
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


MADE: dict[str, Callable[[], object]] = {
    "ToolResult": lambda: ToolResult[str](message="made", value="A"),
    "Binding": lambda: Binding[list[int]](list, lambda _: [], Scope.PROTOTYPE),
    "Replace": lambda: Replace[int]((1, 2)),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_generic_value_is_made_by_its_subscripted_name(make: Callable[[], object]) -> None:
    """The value is that of the class without brackets."""
    made: Any = make()
    fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made) if field.init}
    assert type(made)(**fields) == made


def _generic_dataclasses() -> set[type[Any]]:
    modules = [name for _, name, _ in pkgutil.walk_packages(handrail.__path__, "handrail.") if "__main__" not in name]
    members = [each for name in modules for each in vars(import_module(name)).values() if isinstance(each, type)]
    return {each for each in members if dataclasses.is_dataclass(each) and getattr(each, "__parameters__", None)}


def test_every_generic_dataclass_refuses_other_attributes_as_typing_expects() -> None:
    """`typing` sets `__orig_class__`, and passes over an `AttributeError` alone."""
    classes = _generic_dataclasses()
    assert ToolResult in classes
    for cls in classes:
        with suppress(AttributeError):  # any other error ends the creation
            object.__new__(cls).__orig_class__ = cls


def test_other_attribute_of_a_frozen_value_is_refused_by_name() -> None:
    """A misspelt field is an error of the same class as an assignment to a field."""
    result: Any = ToolResult.ok("A")
    for name in ("message", "mesage"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(result, name, "other")


def all_errors(root: type[HandrailError] = HandrailError) -> list[type[HandrailError]]:
    """Every class of errors that is imported."""
    return [root, *(one for kind in root.__subclasses__() for one in all_errors(kind))]


@pytest.mark.parametrize("kind", sorted({one for one in all_errors() if "handrail" in one.__module__}, key=str))
def test_error_comes_back_from_a_process_or_an_engine_that_pickles_it(kind: type[HandrailError]) -> None:
    """With its message and its attributes; of one that cannot be pickled, the `repr`."""
    error = kind.__new__(kind)
    error.args = ("it failed",)
    vars(error).update(key="a", owner=(attribute := lambda: None))
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - of this line
    assert (type(copy), str(copy), vars(copy)) == (kind, str(error), {"key": "a", "owner": repr(attribute)})
