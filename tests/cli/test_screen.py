"""Text, tables and JSON: for terminals of any width, and for pipes; and tracebacks for who asks for them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
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
    fields_json,
    fields_record,
    format_duration,
    format_when,
    is_set,
    without_option,
)
from tests.cli.agent_folders import noting, write
from tests.cli.desk import Command, Run
from tests.wording import Wording


@pytest.mark.parametrize(
    "text, shown",
    [
        ("Zürich 東京 🙂", "Zürich 東京 🙂"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202efed", "abc\\u202efed"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(text: str, shown: str) -> None:
    """A model writes keys and messages; none of them steers the terminal of who looks at it."""
    assert clean(text) == shown


@given(st.text())
def test_clean_text_is_one_line_that_every_terminal_can_write(text: str) -> None:
    """Whatever the text, the result is printable or a blank, and UTF-8."""
    cleaned = clean(text)
    assert len(cleaned.splitlines()) <= 1
    assert "\x1b" not in cleaned
    cleaned.encode()


def test_lines_stay_lines_where_there_is_room_for_them() -> None:
    """A message of several lines keeps them, and each is clean."""
    assert clean_lines("one\ntwo\x07") == "one\ntwo\\x07"


def test_a_moment_is_in_utc() -> None:
    """People compare times of machines in several zones."""
    berlin = timezone(timedelta(hours=1))
    assert format_when(datetime(2026, 1, 2, 0, 30, 59, tzinfo=berlin)) == "2026-01-01 23:30:59 UTC"
    assert format_when(None) == ""


@pytest.mark.parametrize(
    "seconds, told",
    [(0, "0 s"), (-40, "40 s"), (119, "119 s"), (120, "2 min"), (7_199, "120 min"), (7_200, "2 h"), (400_000, "5 d")],
)
def test_a_span_is_told_in_its_largest_unit(seconds: int, told: str) -> None:
    """One number is enough to compare."""
    assert format_duration(timedelta(seconds=seconds)) == told


Row = tuple[str, int, str, str]


FIELDS: tuple[Field[Row], ...] = (
    Field("name", itemgetter(0)),
    Field("size", itemgetter(1)),
    Field("", itemgetter(2), key="hidden"),
    Field("state", itemgetter(2), styles={"bad": "red"}),
    Field("text", itemgetter(3)),
)


ROWS: list[Row] = [("ada", 7, "good", "short"), ("grace", 1200, "bad", "a text that is longer than what is left")]


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


def test_cells_are_coloured_on_a_terminal_only() -> None:
    """The style of a state is looked up by its text."""
    output = Output(width=120, colours=True)
    output.screen.table(FIELDS, ROWS)
    assert "\x1b[31mbad" in output.written.getvalue()
    piped = Output(width=120, terminal=False)
    piped.screen.table(FIELDS, ROWS)
    assert "\x1b" not in piped.written.getvalue()


def test_a_table_in_a_pipe_is_never_cut() -> None:
    """Whoever reads the pipe gets all columns and all text, whatever the width."""
    output = Output(width=20, terminal=False)
    output.screen.table(FIELDS, ROWS)
    assert output.lines == [
        "name    size  state  text",
        "ada        7  good   short",
        "grace  1,200  bad    a text that is longer than what is left",
    ]


def test_a_field_has_a_value_for_programs_and_a_text_for_people() -> None:
    """What is empty is left out for people; what has no name is for programs alone."""
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    fields: tuple[Field[object], ...] = (
        Field("at", lambda _: noon, key="made_at"),
        Field("data", lambda _: {"a": 1}),
        Field("text", lambda _: None, lambda _: "said", key=""),
        Field("nothing", lambda _: None),
        Field("", lambda _: 2000, key="count"),
    )
    assert fields_json(fields, None) == {"made_at": noon, "data": {"a": 1}, "nothing": None, "count": 2000}
    shown = [("at", "2026-01-05 12:00:00 UTC"), ("data", '{\n  "a": 1\n}'), ("text", "said")]
    assert fields_record(fields, None) == shown


@given(st.lists(st.tuples(st.text(), st.integers(), st.text(), st.text()), max_size=5), st.integers(40, 100))
def test_no_line_of_a_table_is_wider_than_the_terminal(rows: list[Row], width: int) -> None:
    """Nothing in a cell moves the columns: not its width, not its characters."""
    output = Output(width=width)
    output.screen.table(FIELDS, rows)
    assert all(cell_len(line) <= width for line in output.written.getvalue().split("\n"))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_record_names_its_values(terminal: bool) -> None:
    """A value of several lines stays in its column."""
    output = Output(width=40, terminal=terminal)
    output.screen.record([("key", "k[1]"), ("message", "one\ntwo\x1b")])
    assert output.lines == ["key      k[1]", "message  one", "         two\\x1b"]


def test_long_lines_are_not_wrapped_in_a_pipe() -> None:
    """What is said, and texts, stay as they are."""
    output = Output(width=20, terminal=False)
    output.screen.say("x" * 100)
    output.screen.text('{\n  "a": "' + "y" * 100 + '"\n}', indent=2)
    assert output.lines == ["x" * 100, "  {", '    "a": "' + "y" * 100 + '"', "  }"]


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


@pytest.mark.parametrize(
    "words, left",
    [
        (("run", "desk.agent"), ["run", "desk.agent"]),
        (("run", "desk.agent", "--debug"), ["run", "desk.agent"]),
        (("--debug", "sessions", "--debug", "list"), ["sessions", "list"]),
        (("run", "--debug", "desk.agent", "--", "--debug"), ["run", "desk.agent", "--", "--debug"]),
    ],
)
def test_the_option_may_stand_anywhere(words: Sequence[str], left: list[str]) -> None:
    """What stands behind `--` is no option."""
    assert without_option(words) == left


@pytest.mark.parametrize(
    "value, asked",
    [*((value, True) for value in ("1", "true", " yes ")), *((value, False) for value in ("0", "False", " no ", ""))],
)
def test_the_variable_asks_for_tracebacks_unless_it_says_no(value: str, asked: bool) -> None:
    """Or is not there."""
    assert is_set({"HANDRAIL_DEBUG": value}) is asked
    assert not is_set({})


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
