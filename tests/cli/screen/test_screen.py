"""Tables and JSON: for terminals of any width, and for pipes."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from handrail.cli.screen import Field, Screen, clean_lines, fields_json, fields_record
from tests.wording import Wording

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
