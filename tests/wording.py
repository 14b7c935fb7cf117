"""The wording of messages, for people and for models: one file that the tests compare with.

A test asserts types and attributes. Where the text matters, it takes the fixture `wording` and compares the whole text:
`assert message.content == wording`. The texts stand in `tests/wording.txt`, each once, below the tests that assert it.
A change of wording touches that file alone: `make wording` writes it anew, and the difference is read before it is
committed.

What differs from run to run is replaced before a text is compared: the folder of the test, the folder of the
repository, UUIDs, how long a call took.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from tests.extent import FULL

TESTS = Path(__file__).parent
FILE = TESTS / "wording.txt"
_LINE = "  |"
_PARAMETERS = re.compile(r"\[.*\]", re.DOTALL)  # of a test; written only where the text depends on them
_NUMBER = re.compile(r" #\d+$")  # of an assertion, from the second on
_SECONDS = re.compile(r"\b(ok|replayed|refused|rolled back|outcome unknown), \d+\.\d s\b")  # how long a call took
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Wording(str):
    """The texts of one test, in the order in which it asserts them: it is equal to the next of them.

    It is a `str`, so that it can stand for a text inside the value that a test compares. A list is compared as lines.
    """

    __slots__ = ("_asserted", "_changing", "_found", "_missed", "_name", "_write")

    _asserted: int
    _changing: Mapping[str, str]
    _found: str
    _missed: str | None
    _name: str
    _write: bool

    @classmethod
    def of(cls, name: str, changing: Mapping[str, str], *, write: bool) -> Wording:
        """The texts of the test `name`.

        Args:
            name: the test, from the folder of the tests on.
            changing: what differs from run to run, with what stands for it in the file.
            write: take each text as it is, to be written to the file.
        """
        self = cls(f"the wording of {name}")
        self._name, self._changing, self._write, self._asserted, self._missed = name, changing, write, 0, None
        self._found = ""
        return self

    @property
    def _key(self) -> str:
        return self._name if self._asserted < 2 else f"{self._name} #{self._asserted}"

    @property
    def _stored(self) -> str | None:
        return _stored_text(self._key)

    def __eq__(self, text: object) -> bool:
        """Whether `text` is the next text of the test."""
        if isinstance(text, list | tuple):
            text = "\n".join(map(str, cast("Iterable[object]", text)))
        if not isinstance(text, str):
            return NotImplemented
        self._asserted += 1
        shown = _shown(text, self._changing)
        if self._write:
            _written[self._key] = shown
        if self._write or self._stored == shown:
            return True
        if self._missed is None:
            self._missed, self._found = self._key, shown
        return False

    def __ne__(self, text: object) -> bool:
        """Whether `text` is not the next text of the test."""
        return not self == text

    __hash__ = str.__hash__

    def __repr__(self) -> str:
        """The text that was not met, for the report of a failure: pytest compares again for it. Else the last text."""
        key = self._missed or self._key
        return _stored_text(key) or f"nothing in tests/wording.txt for {key}; `make wording` writes it"

    def explained(self) -> list[str]:
        """What the report of a failure says: the text of the file, the other one, and how the file is written."""
        module = self._name.partition("::")[0]
        return [
            "this text of tests/wording.txt",
            *repr(self).splitlines(),
            "and the text of the program differ:",
            *self._found.splitlines(),
            f'If that is right: make wording ARGS="tests/{module}", and read the difference.',
        ]


_written: dict[str, str] = {}
"""What the tests of this process asserted, by the key of each, where the file is written."""

_ran: set[str] = set()
"""The tests that have run in this process, where the file is written."""


def _shown(text: str, changing: Mapping[str, str]) -> str:
    """A text as it stands in the file: each line after a bar, and what cannot be printed as an escape."""
    for found, written in changing.items():
        text = text.replace(found, written)
    lines = _SECONDS.sub(r"\1, N s", _UUID.sub("<uuid>", text)).split("\n")
    return "\n".join(f"{_LINE} {_printable(line)}".rstrip() for line in lines)


def _printable(line: str) -> str:
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return f"{shown[:-1]}\\x20" if shown.endswith(" ") else shown


@cache
def _stored() -> dict[str, str]:
    """Each text of the file, as it stands there, by the key of the assertion."""
    stored: dict[str, str] = {}
    keys: list[str] = []
    shown: list[str] = []
    for line in FILE.read_text(encoding="utf-8").split("\n") if FILE.exists() else []:
        if line.startswith(_LINE):
            shown.append(line)
        elif shown:
            stored.update(dict.fromkeys(keys, "\n".join(shown)))
            keys, shown = [line], []
        else:
            keys.append(line)
    return stored


def _stored_text(key: str) -> str | None:
    return _stored().get(key) or _stored().get(_PARAMETERS.sub("", key))


def _write(found: Mapping[str, str], ran: set[str]) -> None:
    """Write the file: what the tests asserted, and the texts of tests that did not run and still exist."""
    functions = set(map(_test, ran))
    kept = {
        key: text
        for key, text in _stored().items()
        # Without its parameters a key is of all cases; of some, only the full form runs all.
        if (_test(key) not in functions or (not FULL and _case(key) not in ran | functions)) and _exists(_test(key))
    }
    asserted: dict[str, dict[str, str]] = {}
    for key, text in (kept | dict(found)).items():
        asserted.setdefault(_PARAMETERS.sub("", key), {})[key] = text
    written: dict[str, str] = {}
    for name, texts in asserted.items():
        written |= {name: next(iter(texts.values()))} if len(set(texts.values())) == 1 else texts
    keys: dict[str, list[str]] = {}
    for key, text in sorted(written.items()):
        keys.setdefault(text, []).append(key)
    entries = ["\n".join([*names, text, ""]) for text, names in keys.items()]
    FILE.write_text("".join(entries), encoding="utf-8")


def _test(key: str) -> str:
    """The test function that a key is of."""
    return _PARAMETERS.sub("", key).partition(" #")[0]


def _case(key: str) -> str:
    """The test that a key is of, with its parameters."""
    return _NUMBER.sub("", key)


def _exists(test: str) -> bool:
    module, _, function = test.partition("::")
    path = TESTS / module
    return path.exists() and f"def {function}(" in path.read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------- pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the file."""
    parser.addoption("--write-wording", action="store_true", help="write the texts that the tests see")


def _name(item: pytest.Item) -> str:
    return item.nodeid.removeprefix("tests/")


@pytest.fixture
def wording(request: pytest.FixtureRequest) -> Wording:
    """The texts that the test asserts, from `tests/wording.txt`."""
    changing = {str(TESTS.parent): "<repository>"}
    if "tmp_path" in request.fixturenames:
        changing = {str(request.getfixturevalue("tmp_path")): "<tmp_path>", **changing}
    return Wording.of(_name(request.node), changing, write=request.config.option.write_wording)


def pytest_assertrepr_compare(left: object, right: object) -> list[str] | None:
    """Show both texts where one is not as it was."""
    return next((each.explained() for each in (left, right) if isinstance(each, Wording)), None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The test runs: what the file has of it, and it does not assert, is left out."""
    _ran.add(_name(item))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the texts of a worker to the process that started it; there, write them all."""
    if not session.config.option.write_wording:
        return
    folder = Path(os.environ["HANDRAIL_TEST_RUN"])
    if hasattr(session.config, "workerinput"):
        (folder / f"wording-{os.getpid()}.json").write_text(json.dumps([_written, sorted(_ran)]))
        return
    for part in folder.glob("wording-*.json"):
        written, ran = json.loads(part.read_text())
        _written.update(written)
        _ran.update(ran)
    _write(_written, _ran)
