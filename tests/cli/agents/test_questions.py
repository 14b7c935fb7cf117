"""Asking a person on a terminal whether a call may run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from handrail.agents.approval.decisions import Answer, GatedCall
from handrail.cli.agents.progress import TerminalAsker, argument_lines, question_fields
from handrail.cli.screen import Screen
from tests.cli.dialogue import ENDS_INPUT, INTERRUPTS, Dialogue
from tests.wording import Wording


def call_of(arguments: dict[str, Any] | None = None, **changed: Any) -> GatedCall:
    """A call of a nested agent."""
    call = GatedCall(
        path=("desk", "research"),
        session_id="s",
        call_id="c",
        tool="write_file",
        effect="state",
        arguments={"path": "notes.md"} if arguments is None else arguments,
        digest="d",
        origin="toolset files (built-in)",
    )
    return replace(call, **changed)


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
            given.append(asyncio.run(TerminalAsker(Screen(), can_wait=can_wait)(call or call_of())))

        dialogue.run(command)
        return given[0], dialogue

    return asked


@pytest.mark.parametrize(
    "answers, answer",
    [
        (["y\n"], Answer("yes")),
        (["YES\n"], Answer("yes")),
        ([" y \n"], Answer("yes")),
        (["a\n"], Answer("yes", "arguments")),
        (["r\n"], Answer("yes", "rule")),
        (["n\n", "too early\n"], Answer("no", reason="too early")),
        (["n\n", "\n"], Answer("no")),
        (["n\n", ENDS_INPUT], Answer("no")),
        (["\n", "maybe\n", "y\n"], Answer("yes")),
    ],
)
def test_each_answer_has_its_key(ask: Ask, answers: list[str], answer: Answer) -> None:
    """What is no answer decides nothing: the question is put again."""
    assert ask(answers)[0] == answer


def test_the_end_of_the_input_is_a_no(ask: Ask, wording: Wording) -> None:
    """Nobody has said yes."""
    answer, dialogue = ask([ENDS_INPUT])
    assert answer == Answer("no", reason=wording)
    assert dialogue.screen.endswith("\n")


def test_a_line_that_ends_with_the_input_counts(ask: Ask) -> None:
    """A person may end the input instead of pressing Enter."""
    assert ask([f"y{ENDS_INPUT}{ENDS_INPUT}"])[0] == Answer("yes")


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
    _, dialogue = ask(["y\n"], call_of({"path": "a.md", "size": 3}, asks=("is this order paid?",)))
    assert dialogue.lines == wording


def test_a_question_is_put_once_for_the_whole_of_long_arguments(ask: Ask, wording: Wording) -> None:
    """What is not shown is told, and can be asked for."""
    text = "x" * 1000 + "END"
    _, dialogue = ask(["w\n", "y\n"], call_of({"text": text}))
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
            asyncio.run(TerminalAsker(Screen(), can_wait=False)(call_of()))

    dialogue.run(command)
    assert dialogue.screen.endswith("] \n")


@pytest.mark.parametrize(
    "value, shown",
    [
        ("a\nb\x1b[2J", '"a\\nb\\u001b[2J"'),
        ("\u202eevil\x9b", '"\\u202eevil\\x9b"'),
        ("\ud800", '"\\ud800"'),
        ("Zürich", '"Zürich"'),
        ({"a": [1, None, True]}, '{"a": [1, null, true]}'),
        ("5", '"5"'),
        (5, "5"),
        ({1}, '"{1}"'),
    ],
)
def test_values_are_shown_as_json_without_what_a_terminal_obeys(value: object, shown: str) -> None:
    """A value cannot look like another one, nor move the cursor."""
    assert argument_lines({"x": value}) == [f"x = {shown}"]


def test_a_name_of_an_argument_cannot_forge_a_line(wording: Wording) -> None:
    """Servers of tools choose names too."""
    assert argument_lines({"path\neffect read": 1}) == ["path\\neffect read = 1"]
    fields = question_fields(call_of({}, tool="rm\neffect", origin="x\ny", asks=("p\nq",)))
    assert [value for _, value in fields if "\n" in value] == []
    assert dict(fields)["arguments"] == wording


def test_a_path_is_shown_with_what_it_leads_to(wording: Wording) -> None:
    """Cut like other values, and without what a terminal obeys."""
    call = call_of({"path": "l", "limit": 3}, reached={"path": "x/\x1b[2Jask.txt"})
    assert question_fields(call)[-1] == ("arguments", wording)
