"""Names and versions of stored types, and sessions as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from handrail.errors import SessionError, UnknownTypeError
from handrail.session import stored_as
from handrail.session.persistence import stored_types
from tests.kit import raises, refusal
from tests.session.samples import A, B, Note, Rich
from tests.wording import Wording


def renamed(text: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """An upgrade that gives a field another name."""
    return lambda item: {"subject": item[text]}


@stored_as("tests.letter", version=3, upgrades={1: renamed("text"), 2: renamed("subject")})
@dataclass(frozen=True, slots=True)
class Letter:
    """Its field was called `text` once."""

    subject: str


@dataclass(frozen=True, slots=True)
class LoveLetter(Letter):
    """Another type, whatever it is derived of."""


@dataclass(frozen=True, slots=True)
class Word:
    """It has a form of its own."""

    word: str


class Backwards:
    """Writes a word from its end."""

    @staticmethod
    def dump(value: Word, /) -> bytes:
        return b'{"w":"%s"}' % value.word[::-1].encode()

    @staticmethod
    def load(data: dict[str, Any], /) -> Word:
        return Word(data["w"][::-1])


stored_as("tests.word", form=stored_types.StoredForm(Backwards().dump, Backwards().load))(Word)


@dataclass
class Unsayable:
    """No JSON can say it."""

    act: Callable[[], None]


def test_a_type_is_named_by_module_and_name() -> None:
    """Unless it says otherwise; a subclass does not inherit the name."""
    note = stored_types.stored_type(Note)
    assert (note.name, note.version) == ("tests.session.samples:Note", 1)
    assert (stored_types.stored_type(Letter).name, stored_types.stored_type(Letter).version) == ("tests.letter", 3)
    assert stored_types.stored_type(LoveLetter).name == f"{__name__}:LoveLetter"
    assert stored_types.stored_type(Note) is note


def test_values_come_back_as_what_they_were() -> None:
    """In an array of as many."""
    stored = stored_types.stored_type(Note)
    assert stored.load(stored.dump((A, B)), 1) == [A, B]
    assert stored.load(stored.dump(()), 1) == []
    words = stored_types.stored_type(Word)
    assert words.dump((Word("abc"),)) == b'[{"w":"cba"}]'
    assert words.load(words.dump((Word("abc"),)), 1) == [Word("abc")]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_values_go_through_the_upgrades(version: int) -> None:
    """Through each of them, from their version on."""
    data = b'[{"text":"x"}]' if version == 1 else b'[{"subject":"x"}]'
    assert stored_types.stored_type(Letter).load(data, version) == [Letter("x")]


def test_a_newer_version_names_itself(wording: Wording) -> None:
    """And says how to read it."""
    error = refusal(UnknownTypeError, stored_types.stored_type(Letter).load, b"[{}]", 4)
    assert str(error) == wording
    assert error.type_name == "tests.letter"


def test_what_does_not_fit_the_class_of_today_asks_for_an_upgrade(wording: Wording) -> None:
    """Present version or older."""
    assert str(refusal(UnknownTypeError, stored_types.stored_type(Note).load, b'[{"words":"x"}]', 1)) == wording
    assert str(refusal(UnknownTypeError, stored_types.stored_type(Letter).load, b'[{"text":7}]', 1)) == wording


def test_an_upgrade_that_fails_is_named(wording: Wording) -> None:
    """It met a value that it was not made for."""
    error = refusal(UnknownTypeError, stored_types.stored_type(Letter).load, b'[{"words":"x"}]', 1)
    assert str(error) == wording
    assert isinstance(error.__cause__, KeyError)


@pytest.mark.parametrize("data, version", [(b"{}", 2), (b"[", 2), (b'[{"subject":"x"}]', 0)])
def test_what_is_no_array_of_a_version_is_refused(data: bytes, version: int, wording: Wording) -> None:
    """Somebody has changed the row."""
    assert str(refusal(ValueError, stored_types.stored_type(Letter).load, data, version)) == wording


def test_what_cannot_be_said_is_refused(wording: Wording) -> None:
    """A type, a value, or one of another type, which would come back as something else."""
    assert str(refusal(SessionError, stored_types.stored_type, Unsayable)) == wording
    assert str(refusal(SessionError, stored_types.stored_type(Note).dump, (Note("\ud800"),))) == wording
    assert str(refusal(SessionError, stored_types.stored_type(Letter).dump, (LoveLetter("x"),))) == wording


@pytest.mark.parametrize("name", ["", "a b", "a" * 201, "a\n"])
def test_a_name_is_a_word(name: str, wording: Wording) -> None:
    """It is looked up, and shown to people."""
    assert str(refusal(SessionError, stored_as, name)) == wording


def nothing(item: dict[str, Any]) -> dict[str, Any]:
    """An upgrade that changes nothing."""
    return item


@pytest.mark.parametrize("version, upgrades", [(0, {}), (2, {}), (1, {1: nothing}), (3, {1: nothing})])
def test_each_older_version_has_one_upgrade(version: int, upgrades: dict[int, Any], wording: Wording) -> None:
    """No more, no less."""
    assert str(refusal(SessionError, stored_as, "tests.versioned", version=version, upgrades=upgrades)) == wording


def test_a_name_is_of_one_class(wording: Wording) -> None:
    """A module that is loaded again names its class anew."""

    def load() -> type[Any]:
        @stored_as("tests.again")
        @dataclass
        class Again:
            a: int

        return Again

    first, again = load(), load()
    assert stored_types.find_type("tests.again") is again is not first
    assert str(refusal(SessionError, stored_as("tests.again"), Note)) == wording


def test_the_name_goes_above_the_dataclass(wording: Wording) -> None:
    """Below it, it would name a class that `slots=True` then replaces."""
    with raises(SessionError, wording):

        @dataclass(slots=True)
        @stored_as("tests.below")
        class Below:
            a: int


def test_a_type_is_found_by_its_name() -> None:
    """Among those given, those named, and those of the modules that are there; nothing is imported."""

    @dataclass
    class Local:
        a: int

    local = stored_types.StoredType(Local).name
    assert stored_types.find_type(local) is None
    assert stored_types.find_type(local, (Note, Local)) is Local
    assert stored_types.find_type("tests.letter") is Letter
    assert stored_types.find_type("tests.session.samples:Rich") is Rich
    for name in ("tests.session.samples:Poor", "tests.session.samples:NOTES", "tests.session.samples", "", ":", "x:y"):
        assert stored_types.find_type(name) is None
    assert stored_types.find_type(f"{__name__}:Letter") is None  # it is stored under another name
    assert "tests.session.unheard" not in sys.modules
    assert stored_types.find_type("tests.session.unheard:Note") is None
    assert "tests.session.unheard" not in sys.modules


def test_an_unknown_type_says_how_to_make_it_known(wording: Wording) -> None:
    """By import or by name."""
    error = stored_types.unknown_type("desk.plans:Plan", "session 's' in memory:")
    assert error.type_name == "desk.plans:Plan"
    assert str(error) == wording
    assert str(stored_types.unknown_type("desk.plan", "it")) == wording
    own = stored_types.unknown_type("handrail.approval", "session 's' in memory:")
    assert own.type_name == "handrail.approval"
    assert str(own) == wording


def test_a_name_is_free_again_when_the_module_of_its_class_is_gone(wording: Wording) -> None:
    """Those of other modules stay; a class of a module that Python does not have is told without a file."""

    def load(module: str) -> type[Any]:
        @dataclass
        class Plan:
            a: int

        Plan.__module__ = module
        return stored_as("tests.gone")(Plan)

    first = load("tests.nowhere")
    assert stored_types.stored_type(first).name == "tests.gone"
    assert str(refusal(SessionError, load, "tests.elsewhere")) == wording
    stored_types.forget_types(lambda module: module == "tests.elsewhere")
    assert stored_types.find_type("tests.gone") is first
    stored_types.forget_types(lambda module: module == "tests.nowhere")
    assert stored_types.find_type("tests.gone") is None
    second = load("tests.elsewhere")
    assert stored_types.find_type("tests.gone") is second
    stored_types.forget_types(lambda module: module == "tests.elsewhere")
