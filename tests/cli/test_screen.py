"""What a person or a program sees of a run and of a failure, what is asked on a terminal, and what a text cannot do."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from handrail.agents.approval.decisions import Answer, Decision, GatedCall
from handrail.agents.run import interface as seen
from handrail.agents.run.interface import CallEnded, CallStarted, QuestionDecided, RunEnded, TextDelta
from handrail.cli.agents.progress import JsonProgress, TerminalAsker, TextProgress, argument_lines, question_fields
from handrail.cli.screen import Field, Screen, debugging
from handrail.limits import TokenUsage
from handrail.readable import clean, clean_lines
from handrail.runtime import EffectAwaited
from handrail.store.protocol import ClaimOwner
from handrail.testing import FakeClock
from tests.cli.agent_folders import noting, write
from tests.cli.desk import ENDS_INPUT, INTERRUPTS, Command, Dialogue, Run
from tests.wording import Wording

DESK = ("desk",)


CHILD = ("desk", "research")


NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


class Streams:
    """A screen whose streams are kept, each of them a terminal or not."""

    def __init__(self, *, terminal: bool, width: int | None = None) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()
        options = {"highlight": False, "markup": False, "emoji": False, "color_system": None, "width": width or 10**6}
        self.screen = Screen(
            Console(file=self._out, force_terminal=terminal, **options),  # type: ignore[arg-type]
            Console(file=self._err, force_terminal=width is not None, **options),  # type: ignore[arg-type]
        )

    @property
    def out(self) -> str:
        return self._out.getvalue()

    @property
    def err(self) -> list[str]:
        return self._err.getvalue().splitlines()


def told(
    *events: seen.RunEvent, terminal: bool = False, width: int | None = None, answer: str | None = None
) -> Streams:
    """What a person has seen after some events, and the answer: on a terminal of a width, or in a pipe."""
    streams = Streams(terminal=terminal, width=width)
    report = TextProgress(streams.screen)
    for event in events:
        report(event)
    if answer is not None:
        report.answer(answer)
    return streams


def started(by: tuple[str, ...] = DESK, /, **arguments: object) -> CallStarted:
    """The model has asked for a call."""
    return CallStarted(by, "c", "look", arguments)


def ended(content: str = "fine", *, success: bool = True, replayed: bool = False) -> CallEnded:
    """It is over."""
    return CallEnded(DESK, "c", "look", success, content, 0.25, replayed)


DONE = RunEnded(DESK, "done", "All done.", TokenUsage(1200, 34), "s")


def test_on_a_terminal_the_text_streams(wording: Wording) -> None:
    """Each piece at once, each remark on a line of its own; the answer is not printed twice."""
    said = TextDelta(DESK, "I shall "), TextDelta(DESK, "look."), started(), ended()
    last = TextDelta(DESK, "All\tdone.\x1b[2J\n")
    assert told(*said, last, DONE, terminal=True, answer="All\tdone.\x1b[2J").out == wording


@pytest.mark.parametrize("answer, printed", [("Not what was said", "Not what was said\n"), ("", "")])
def test_an_answer_that_was_not_streamed_is_printed(answer: str, printed: str) -> None:
    """A resumed run may end with what was said before."""
    streams = told(TextDelta(DESK, "Well"), started(), DONE, terminal=True, answer=answer)
    assert streams.out == f"Well\n{printed}"


@pytest.mark.parametrize("verdict, by", [("allow", "remembered"), ("deny", "remembered"), ("later", "person")])
def test_what_is_decided_about_a_call_names_its_arguments(
    verdict: Literal["allow", "deny", "later"], by: Literal["person", "remembered"], wording: Wording
) -> None:
    """Also of one that waits."""
    call = gated_call()
    begun = CallStarted(call.path, call.call_id, call.tool, call.arguments)
    assert told(begun, QuestionDecided(call, Decision(verdict, "d", by=by))).err[1:] == [wording]


LINES = [
    pytest.param(seen.RunStarted(DESK, "m", "s", resumed=True), id="resumed"),
    pytest.param(seen.RunWarned(DESK, "a rule\nfits nothing"), id="warned"),
    pytest.param(ended("no\nsuch \x1b file", success=False), id="failed"),
    pytest.param(ended("x" * 300, success=False), id="failed at length"),
    pytest.param(replace(ended("no", success=False), refused=True), id="refused"),
    pytest.param(started(text="x" * 100), id="long argument"),
    pytest.param(RunEnded(DESK, "waiting", "", TokenUsage(1, 1), "s"), id="waiting"),
]


@pytest.mark.parametrize("event", LINES)
def test_events_are_told_in_a_line(event: seen.RunEvent, wording: Wording) -> None:
    """Short, without line ends, and without what a terminal obeys."""
    assert told(event).err == [wording]


def test_for_programs_each_event_is_a_line_of_json() -> None:
    """With the name of the event, the time, and all its fields."""
    streams = Streams(terminal=False)
    recorded = JsonProgress(streams.screen, clock=FakeClock(NOON))
    asked = seen.QuestionAsked(gated_call(reached={"path": "docs/notes.md"}))
    for event in (started(n=float("nan"), s="\n\x1b"), asked, DONE):
        recorded(event)
    recorded.answer("All done.")
    at = NOON.isoformat()
    call: dict[str, object]
    call = {"path": ["desk", "research"], "session_id": "s", "call_id": "c", "tool": "write_file", "effect": "state"}
    call |= {"arguments": {"path": "notes.md"}, "digest": "d", "origin": "toolset files (built-in)", "asks": []}
    call |= {"default": None, "written": None, "reply": None, "own_tool": "", "description": ""}
    begun = {"event": "call_started", "at": at, "path": ["desk"], "call_id": "c", "tool": "look", "reply": None}
    over = {"event": "run_ended", "at": at, "path": ["desk"], "status": "done", "output": "All done."}
    assert [json.loads(line) for line in streams.out.splitlines()] == [
        begun | {"arguments": {"n": "NaN", "s": "\n\x1b"}},
        {"event": "question_asked", "at": at, "call": call | {"reached": {"path": "docs/notes.md"}}},
        over | {"usage": {"input": 1200, "output": 34, "cached": 0}, "session_id": "s", "unknown": {}},
    ]
    assert streams.err == []


def test_a_wait_is_told_with_its_owner_and_its_end(wording: Wording) -> None:
    """In one line, before it begins, so that a run does not stand still without a word."""
    owner = ClaimOwner("night", "resp_1", "call_0", "desk-host - 4711 0")
    event = seen.CallWaits.of(DESK, EffectAwaited("night", "resp_2", "call_0", "pay", "shop:pay:7", owner, NOON))
    (line,) = told(event).err
    assert line == wording
    streams = Streams(terminal=False)
    JsonProgress(streams.screen, clock=FakeClock(NOON))(event)
    waits = {"event": "call_waits", "at": NOON.isoformat(), "path": ["desk"], "reply": "resp_2", "call_id": "call_0"}
    waits |= {"tool": "pay", "key": "shop:pay:7", "owner": "night/resp_1/call_0, process 4711 on desk-host"}
    assert json.loads(streams.out) == waits | {"until": NOON.isoformat()}


def gated_call(arguments: dict[str, Any] | None = None, **changed: Any) -> GatedCall:
    """A call of a nested agent."""
    given = {"path": "notes.md"} if arguments is None else arguments
    call = GatedCall(
        path=CHILD, session_id="s", call_id="c", tool="write_file", effect="state", arguments=given, digest="d"
    )
    return replace(call, **{"origin": "toolset files (built-in)", **changed})


Ask = Callable[..., tuple[Answer, Dialogue]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask about a call, with a person who types the answers."""

    def asked(
        answers: Sequence[str], call: GatedCall | None = None, *, can_wait: bool = False, ahead: str = ""
    ) -> tuple[Answer, Dialogue]:
        dialogue = Dialogue(monkeypatch, answers, ahead)
        given: list[Answer] = []

        def command() -> None:
            given.append(asyncio.run(TerminalAsker(Screen(), can_wait=can_wait)(call or gated_call())))

        dialogue.run(command)
        return given[0], dialogue

    return asked


KEYS = [
    *((["y\n"], Answer("yes")), (["YES\n"], Answer("yes")), ([" y \n"], Answer("yes"))),
    *((["a\n"], Answer("yes", "arguments")), (["r\n"], Answer("yes", "rule"))),
    *((["n\n", "too early\n"], Answer("no", reason="too early")), (["n\n", "\n"], Answer("no"))),
    *((["n\n", ENDS_INPUT], Answer("no")), (["\n", "maybe\n", "y\n"], Answer("yes"))),
    ([f"y{ENDS_INPUT}{ENDS_INPUT}"], Answer("yes")),
]


@pytest.mark.parametrize("answers, answer", KEYS)
def test_each_answer_has_its_key(ask: Ask, answers: list[str], answer: Answer) -> None:
    """What is no answer decides nothing: the question is put again. A line may end with the input."""
    assert ask(answers)[0] == answer


def test_the_end_of_the_input_is_a_no(ask: Ask, wording: Wording) -> None:
    """Nobody has said yes."""
    answer, dialogue = ask([ENDS_INPUT])
    assert answer == Answer("no", reason=wording)
    assert dialogue.screen.endswith("\n")


def test_what_was_typed_before_the_question_answers_nothing(ask: Ask) -> None:
    """An Enter too many, or a yes to something else, must not let a call run."""
    assert ask(["n\n", "\n"], ahead="y\ny\ny\n")[0] == Answer("no")


@pytest.mark.parametrize("can_wait, verdict", [(True, "later"), (False, "yes")])
def test_a_question_can_wait_if_the_session_is_kept(ask: Ask, can_wait: bool, verdict: str, wording: Wording) -> None:
    """Else it says why not, and asks again."""
    answer, dialogue = ask(["l\n", "y\n"], can_wait=can_wait)
    assert answer.verdict == verdict
    assert dialogue.lines == wording


def test_a_question_shows_all_that_a_person_must_know(ask: Ask, wording: Wording) -> None:
    """Who calls, what, from where, with what, and what policies want to have asked."""
    _, dialogue = ask(["y\n"], gated_call({"path": "a.md", "size": 3}, asks=("is this order paid?",)))
    assert dialogue.lines == wording


def test_a_question_is_put_once_for_the_whole_of_long_arguments(ask: Ask, wording: Wording) -> None:
    """What is not shown is told, and can be asked for."""
    text = "x" * 1000 + "END"
    _, dialogue = ask(["w\n", "y\n"], gated_call({"text": text}))
    shown = "".join(dialogue.screen.split())  # a long line is folded
    assert "…(1,005" in shown
    assert [line for line in dialogue.lines if "w = " in line] == wording
    assert shown.count("END") == 1


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_waiting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is over; nothing holds on to the keyboard."""
    dialogue = Dialogue(monkeypatch, [INTERRUPTS])

    def command() -> None:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(TerminalAsker(Screen(), can_wait=False)(gated_call()))

    dialogue.run(command)
    assert dialogue.screen.endswith("] \n")


SHOWN_VALUES = [
    *(("a\nb\x1b[2J", '"a\\nb\\u001b[2J"'), ("\u202eevil\x9b", '"\\u202eevil\\x9b"'), ("\ud800", '"\\ud800"')),
    *(("Zürich", '"Zürich"'), ({"a": [1, None, True]}, '{"a": [1, null, true]}'), (5, "5")),
    *(("5", '"5"'), ({1}, '"{1}"')),
]


@pytest.mark.parametrize("value, shown", SHOWN_VALUES)
def test_values_are_shown_as_json_without_what_a_terminal_obeys(value: object, shown: str) -> None:
    """A value cannot look like another one, nor move the cursor."""
    assert argument_lines({"x": value}) == [f"x = {shown}"]


def test_a_name_of_an_argument_cannot_forge_a_line(wording: Wording) -> None:
    """Servers of tools choose names too."""
    assert argument_lines({"path\neffect read": 1}) == ["path\\neffect read = 1"]
    fields = question_fields(gated_call({}, tool="rm\neffect", origin="x\ny", asks=("p\nq",)))
    assert [value for _, value in fields if "\n" in value] == []
    assert dict(fields)["arguments"] == wording


def test_a_path_is_shown_with_what_it_leads_to(wording: Wording) -> None:
    """Cut like other values, and without what a terminal obeys."""
    call = gated_call({"path": "l", "limit": 3}, reached={"path": "x/\x1b[2Jask.txt"})
    assert question_fields(call)[-1] == ("arguments", wording)


@given(st.text())
def test_clean_text_is_one_line_that_every_terminal_can_write(text: str) -> None:
    """Whatever the text, the result is printable or a blank, and UTF-8."""
    cleaned = clean(text)
    assert len(cleaned.splitlines()) <= 1
    assert "\x1b" not in cleaned
    cleaned.encode()


@given(st.lists(st.tuples(st.text(), st.integers(), st.text(), st.text()), max_size=5), st.integers(40, 100))
def test_no_line_of_a_table_is_wider_than_the_terminal(rows: list[tuple[str, int, str, str]], width: int) -> None:
    """Nothing in a cell moves the columns: not its width, not its characters."""
    names = ("name", "size", "state", "text")
    streams = Streams(terminal=True, width=width)
    streams.screen.table([Field(name, itemgetter(at)) for at, name in enumerate(names)], rows)
    assert all(cell_len(line) <= width for line in streams.out.split("\n"))


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


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_a_printed_document_is_the_same_document(document: object) -> None:
    """What would steer a terminal stands in it as JSON has it, so that programs read what was there."""
    streams = Streams(terminal=False)
    streams.screen.json({"document": document})
    assert json.loads(streams.out) == {"document": document}
    assert clean_lines(streams.out) == streams.out


TRACEBACK = "Traceback (most recent call last):"


FAILING = [
    *(("run nowhere Go.", "ValidationError"), ("run other/desk.agent Go.", "ZeroDivisionError")),
    *(("check other/desk.agent", "ZeroDivisionError"), ("new desk --folder desk.agent", "NotADirectoryError")),
    ("sessions list --store sqlite:///nowhere.db", "StoreError"),
]


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("words, raised", FAILING)
def test_a_command_that_fails_shows_its_traceback_above_the_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: str, raised: str, place: int
) -> None:
    """With its cause, wherever the option stands; exit code and line are the same."""
    write(folder / "other", tools__py="1 / 0\n")
    command = Command("", capsys)
    typed = words.split()
    plain, traced = command(*typed), command(*typed[:place], "--debug", *typed[place:])
    assert TRACEBACK not in plain.err
    assert traced.code == plain.code
    above, _, below = traced.err.rpartition("handrail: ")
    assert plain.err.endswith(below)
    assert above.startswith(TRACEBACK)
    assert f"{raised}: " in above


def test_tool_that_raises_shows_its_traceback(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model reads type and message, as ever."""
    monkeypatch.setenv("HANDRAIL_DEBUG", "1")
    ran = run("note it", "--model", noting(folder, "boom"), "--approve", "approve-all")
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert f'File "{folder}/tools.py", line 12, in note' in ran.err
    assert ran.err.index(TRACEBACK) < ran.err.index('desk: note(text="boom") failed')
    assert " s: RuntimeError: the pen is broken [tools.py:12]\n" in ran.err


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
