"""Text, tables and JSON: for terminals of any width, and for pipes; and tracebacks for who asks for them."""

from __future__ import annotations

import io
import json
import logging
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from handrail.cli.screen import (
    Field,
    Screen,
    clean,
    clean_lines,
    debugging,
)
from tests.cli.agent_folders import noting, write
from tests.cli.desk import Command, Run
from tests.wording import Wording


@given(st.text())
def test_clean_text_is_one_line_that_every_terminal_can_write(text: str) -> None:
    """Whatever the text, the result is printable or a blank, and UTF-8."""
    cleaned = clean(text)
    assert len(cleaned.splitlines()) <= 1
    assert "\x1b" not in cleaned
    cleaned.encode()


Row = tuple[str, int, str, str]


FIELDS: tuple[Field[Row], ...] = (
    Field("name", itemgetter(0)),
    Field("size", itemgetter(1)),
    Field("", itemgetter(2), key="hidden"),
    Field("state", itemgetter(2), styles={"bad": "red"}),
    Field("text", itemgetter(3)),
)


class Output:
    """A screen of which both streams are kept."""

    def __init__(self, *, width: int, terminal: bool = True, colours: bool = False) -> None:
        self.written, self.beside = io.StringIO(), io.StringIO()
        out, err = (
            Console(
                file=file,
                width=width if terminal else 1_000_000,
                force_terminal=terminal,
                color_system="standard" if colours else None,
                highlight=False,
                markup=False,
                no_color=not colours,
            )
            for file in (self.written, self.beside)
        )
        self.screen = Screen(out, err)

    @property
    def lines(self) -> list[str]:
        """What stands on standard output."""
        return [line.rstrip() for line in self.written.getvalue().splitlines()]


@given(st.lists(st.tuples(st.text(), st.integers(), st.text(), st.text()), max_size=5), st.integers(40, 100))
def test_no_line_of_a_table_is_wider_than_the_terminal(rows: list[Row], width: int) -> None:
    """Nothing in a cell moves the columns: not its width, not its characters."""
    output = Output(width=width)
    output.screen.table(FIELDS, rows)
    assert all(cell_len(line) <= width for line in output.written.getvalue().split("\n"))


def test_a_fault_is_one_line_without_passwords(capsys: pytest.CaptureFixture[str], wording: Wording) -> None:
    """One line can be read in a log; passwords are masked in all that is written."""
    screen = Screen()
    screen.fault("no answer from\n postgresql://ada:secret@host/db")
    screen.raw("postgresql://ada:secret@host/db")
    written = capsys.readouterr()
    assert written.err == wording
    assert "secret" not in written.out


@pytest.mark.parametrize("encoding, written", [("utf-8", "ü".encode()), ("iso-8859-1", b"\\u00fc")])
def test_json_is_ascii_where_the_stream_is_not_utf8(encoding: str, written: bytes) -> None:
    """JSON is UTF-8; in other encodings only its ASCII form is JSON."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    Screen(Console(file=stream), Console()).json({"a": "ü"}, lines=True)
    stream.flush()
    assert raw.getvalue() == b'{"a": "' + written + b'"}\n'


def test_a_command_is_one_line_at_any_width() -> None:
    """So that it works as it is copied."""
    output = Output(width=30)
    output.screen.command(("handrail", "run", "notes/notes.agent", "--session", "3f2a", "--resume"))
    assert output.lines == ["  handrail run notes/notes.agent --session 3f2a --resume"]


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_a_printed_document_is_the_same_document(document: object) -> None:
    """What would steer a terminal stands in it as JSON has it, so that programs read what was there."""
    output = Output(width=30, terminal=False)
    output.screen.json({"document": document})
    printed = output.written.getvalue()
    assert json.loads(printed) == {"document": document}
    assert clean_lines(printed) == printed


TRACEBACK = "Traceback (most recent call last):"


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize(
    "words, raised",
    [
        (("run", "nowhere", "Go."), "CycloptsError"),
        (("run", "other/desk.agent", "Go."), "ZeroDivisionError"),
        (("check", "other/desk.agent"), "ZeroDivisionError"),
        (("sessions", "list", "--store", "sqlite:///nowhere.db"), "StoreError"),
        (("new", "desk", "--folder", "desk.agent"), "FileExistsError"),
    ],
)
def test_a_command_that_fails_shows_its_traceback_above_the_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], raised: str, place: int
) -> None:
    """With its cause, wherever the option stands; exit code and line are the same."""
    write(folder / "other", tools__py="1 / 0\n")
    command = Command("", capsys)
    plain, traced = command(*words), command(*words[:place], "--debug", *words[place:])
    assert TRACEBACK not in plain.err
    assert traced.code == plain.code
    above, _, below = traced.err.rpartition("handrail: ")
    assert plain.err.endswith(below)
    assert above.startswith(TRACEBACK)
    assert f"{raised}: " in above


def test_a_tool_that_raises_shows_its_traceback_and_the_run_goes_on(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model reads type and message, as ever."""
    monkeypatch.setenv("HANDRAIL_DEBUG", "1")
    ran = run("note it", "--model", noting(folder, "boom"), "--approve", "approve-all")
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert f'File "{folder}/tools.py", line 12, in note' in ran.err
    assert ran.err.index(TRACEBACK) < ran.err.index('desk: note(text="boom") failed')
    assert " s: RuntimeError: the pen is broken [tools.py:12]\n" in ran.err


def test_a_run_that_fails_shows_its_traceback(run: Run, folder: Path) -> None:
    """Above the line that says why."""
    model = noting(folder, "milk")
    ran = run("note it", "--model", model, "--request-limit", "1", "--approve", "approve-all", "--debug")
    assert ran.code == 1
    assert ran.err.index(TRACEBACK) < ran.err.index("handrail: desk: ")
    assert "UsageLimitExceeded" in ran.err


def test_passwords_are_not_shown_in_tracebacks(run: Run, folder: Path) -> None:
    """As they are not in the line below."""
    ran = run("Go.", "--model", noting(folder, "x"), "--store", "mysql://ada:secret@host/db", "--debug")
    assert TRACEBACK in ran.err
    assert "secret" not in ran.err


def test_nothing_of_it_is_left_when_the_command_has_ended(run: Run, folder: Path) -> None:
    """The process may be another program's."""
    assert TRACEBACK not in run("Go.", "--model", "nobody:x").err
    before = list(logging.getLogger("handrail").handlers)
    with debugging():
        logging.getLogger("handrail").warning("without an exception")
    assert TRACEBACK in run("Go.", "--model", "nobody:x", "--debug").err
    assert logging.getLogger("handrail").handlers == before
    assert TRACEBACK not in run("Go.", "--model", "nobody:x").err
