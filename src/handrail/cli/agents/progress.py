"""The view of a run for a person or a program, and the questions to a person.

A person sees lines and streaming text, a program one JSON object a line. Standard output carries only the answer. On a
terminal, that is the text of the agent that was started, as the model writes it; in a pipe it is the final answer, when
it is complete; for a program it is the events.

Everything shown was written by a model or an untrusted tool, so control characters are escaped, and each argument is
JSON on a line of its own, so that no value can look like something else. The answer of a person is read on the event
loop, so that Ctrl-C ends the waiting at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import termios
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from pydantic_core import to_jsonable_python

from handrail.agents.approval.decisions import Answer, GatedCall
from handrail.agents.modules import error_location
from handrail.agents.run.interface import (
    CallEnded,
    CallStarted,
    CallWaits,
    QuestionAsked,
    QuestionDecided,
    RunEnded,
    RunEvent,
    RunStarted,
    RunWarned,
    TextDelta,
)
from handrail.cli.screen import Screen, show_traceback
from handrail.clock import Clock
from handrail.errors import AgentError, HandrailError
from handrail.readable import clean, format_call, format_when
from handrail.serde.formatting import count_noun, json_line, shorten

MOST_SHOWN = 300
"""The characters of an argument that are shown, unless the person requests all of it."""

_CHUNK = 4096
_MOST_OF_CONTENT = 200
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")

CANNOT_ASK = (
    "Without a terminal to ask on, calls that need approval are denied. Give --approve approve-all, --approve "
    "later with a stored session, or what is allowed in --rules FILE; no rule answers what a policy asks."
)
"""Printed once, when a call is denied without a terminal."""


class TextProgress:
    """Reports a run to a person: a line when a call starts and one when it ends. One for each run."""

    __slots__ = ("_labels", "_screen", "_spoken", "_streams", "_texts")

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._streams = screen.out.is_terminal
        self._labels: dict[tuple[tuple[str, ...], str], str] = {}
        self._texts: dict[tuple[str, ...], str] = {}
        self._spoken = ""

    def __call__(self, event: RunEvent) -> None:
        """Prints an event."""
        match event:
            case RunStarted():
                self._remark(event.path, f"{'resumed' if event.resumed else 'started'} on {event.model}")
            case RunWarned():
                self._remark(event.path, f"warning: {event.message}")
            case TextDelta():
                self._text(event)
            case CallStarted():
                self._text_before_call(event.path)
                label = self._labels[event.path, event.call_id] = format_call(event.tool, event.arguments)
                self._remark(event.path, label)
            case CallWaits():
                self._call(event.path, event.call_id, event.tool, f"waits{_wait(event)}")
            case CallEnded():
                self._call(event.path, event.call_id, event.tool, f"{_outcome(event)}{_details(event)}")
            case QuestionAsked() | QuestionDecided():
                self._show_question(event)
            case RunEnded():  # pragma: no branch - these are all
                self._texts.pop(event.path, None)
                usage = f"{count_noun(event.usage.input, 'token')} in, {event.usage.output:,} out"
                self._remark(event.path, f"{event.status}, {usage}")

    def answer(self, output: str) -> None:
        """Prints the final answer, unless its text has been streamed."""
        # In a pipe nothing has been streamed: the answer comes once, as a whole.
        self._end_line()
        if not self._streams:
            self._screen.raw(output)
        # Without a streamed text, or with a structured answer, the output has not been printed yet.
        elif self._spoken.strip() != output.strip():
            self._screen.stream(output)
            self._screen.stream("\n")

    def _text(self, event: TextDelta) -> None:
        # Texts of called agents would mix with that of the caller, so they are collected, and shown before their next
        # call.
        if self._streams and len(event.path) == 1:
            self._spoken += event.text
            self._screen.stream(event.text)
        else:
            self._texts[event.path] = self._texts.get(event.path, "") + event.text

    def _text_before_call(self, path: tuple[str, ...]) -> None:
        if text := self._texts.pop(path, "").strip():
            self._remark(path, text)
        if len(path) == 1:
            self._end_line()
            # What was said before a call is not part of the answer, so `answer` does not compare with it.
            self._spoken = ""

    def _call(self, path: tuple[str, ...], call_id: str, tool: str, outcome: str) -> None:
        self._remark(path, f"{self._labels.get((path, call_id), f'{tool}(…)')} {outcome}")

    def _show_question(self, event: QuestionAsked | QuestionDecided) -> None:
        self._end_line()
        if isinstance(event, QuestionAsked):  # the approver prints the question
            return
        call, decision = event.call, event.decision
        if decision.verdict == "later":
            self._call(call.path, call.call_id, call.tool, "waits for approval")
        elif decision.by == "remembered":
            verdict = "denied" if decision.verdict == "deny" else "allowed"
            self._call(call.path, call.call_id, call.tool, f"{verdict}, as answered before")

    def _remark(self, path: tuple[str, ...], text: str) -> None:
        self._end_line()
        self._screen.remark(f"{'/'.join(path)}: {text}")

    def _end_line(self) -> None:
        if self._spoken and not self._spoken.endswith("\n"):
            self._spoken += "\n"
            self._screen.stream("\n")


class JsonProgress:
    """Prints every event as one line of JSON on standard output."""

    __slots__ = ("_clock", "_screen")

    def __init__(self, screen: Screen, *, clock: Clock) -> None:
        self._screen = screen
        self._clock = clock

    def __call__(self, event: RunEvent) -> None:
        """Prints an event: `event` is the name of its class with underscores, `at` when it was reported."""
        name = _CAMEL.sub("_", type(event).__name__).lower()
        # NaN and the infinities are not numbers of JSON.
        values = json.loads(json.dumps(to_jsonable_python(event, fallback=str)), parse_constant=str)
        self._screen.json({"event": name, "at": self._clock.now().isoformat(), **values}, lines=True)

    def answer(self, output: str) -> None:
        """Prints nothing: the last event has the answer."""


def _wait(event: CallWaits) -> str:
    until = format_when(datetime.fromisoformat(event.until))
    holder = f"{event.owner or 'another call'}, which has claimed {event.key}"
    return f" for {holder}; at most until {until}, unless the lease is renewed"


def _outcome(event: CallEnded) -> str:
    seconds = f"{event.seconds:.1f} s"
    if event.success:
        return f"ok, replayed, {seconds}" if event.replayed else f"ok, {seconds}"
    if event.outcome_unknown:
        return f"outcome unknown, {seconds}"
    if event.refused:
        return f"refused, {seconds}"
    return f"failed, {seconds}" if event.has_effect else f"failed, rolled back, {seconds}"


def _details(event: CallEnded) -> str:
    if event.success:
        return ""
    # The tool is named at the start of the line already.
    content = " ".join(event.content.removeprefix(f"{event.tool} failed: ").split())
    return f": {shorten(content, _MOST_OF_CONTENT)}{f' [{event.raised_at}]' if event.raised_at else ''}"


# ------------------------------------------------------------------------------------------------------------ problems


def flatten_problems(error: HandrailError) -> list[HandrailError]:
    """The problems that an error contains, in order, each once; the error itself if it is a single one."""
    if not isinstance(error, AgentError) or not error.problems:
        return [error]
    return once(problem for part in error.problems for problem in flatten_problems(part))


def once(problems: Iterable[HandrailError]) -> list[HandrailError]:
    """The problems, each message once."""
    # A dictionary preserves the order, and the last of several equal messages.
    return list({str(problem): problem for problem in problems}.values())


def print_problems(screen: Screen, problems: Iterable[HandrailError]) -> None:
    """Prints problems, each below its traceback if these are shown."""
    for problem in problems:
        show_traceback(screen, problem)
        screen.problem(str(problem))


def format_problem(error: BaseException, folder: Path) -> str:
    """An exception of other code: type, message, notes, and where the code of the project in a folder raised it."""
    notes = "; ".join(getattr(error, "__notes__", ()))
    place = error_location(error, folder)
    return f"{type(error).__name__}: {error}{f' ({notes})' if notes else ''}{f' [{place}]' if place else ''}"


# ----------------------------------------------------------------------------------------------------------- questions


_CHOICES = "y = yes, n = no, a = always with these arguments, r = always this tool, {}w = show the whole arguments"


class TerminalAsker:
    """Asks on standard error, and reads the answer from the terminal; one question at a time."""

    __slots__ = ("_can_wait", "_screen")

    def __init__(self, screen: Screen, *, can_wait: bool) -> None:
        self._screen = screen
        self._can_wait = can_wait

    async def __call__(self, call: GatedCall) -> Answer:
        """Asks the person until an answer is typed."""
        # On standard error: standard output is for the answer of the agent.
        self._screen.record(question_fields(call), aside=True)
        while True:
            typed = await self._typed(f"May it run? [{_CHOICES.format('l = later, ' if self._can_wait else '')}]")
            # An end of the input is not an approval.
            if typed is None:
                return Answer("no", reason="the input ended before the question was answered")
            match typed.lower():
                case "y" | "yes":
                    return Answer("yes")
                case "a" | "always":
                    return Answer("yes", remember="arguments")
                case "r":
                    return Answer("yes", remember="rule")
                case "n" | "no":
                    return Answer("no", reason=await self._typed("Why, for the model to read? [Enter = unsaid]") or "")
                case "l" | "later" if self._can_wait:
                    return Answer("later")
                case "w":
                    self._screen.record(question_fields(call, whole=True), aside=True)
                case _:
                    pass  # another key is not an answer: ask again

    async def _typed(self, prompt: str) -> str | None:
        # What was typed so far must not answer a question that was not shown yet.
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        self._screen.prompt(prompt)
        typed = None
        try:
            typed = await read_typed_text(sys.stdin)
        finally:
            # Also if Ctrl-C cancels the task: the next message starts on its own line.
            if typed is None:
                self._screen.end_prompt()
        return typed


def question_fields(call: GatedCall, *, whole: bool = False) -> list[tuple[str, str]]:
    """The facts about a call that a person needs to decide; `whole` for its arguments uncut."""
    fields = [
        ("approve?", f"{'/'.join(call.path)} wants to call {clean(call.tool)}"),
        ("effect", call.effect),
        ("origin", clean(call.origin)),
        ("asked by", "\n".join(clean(question) for question in call.asks)),
        ("arguments", "\n".join(argument_lines(call.arguments, call.reached, whole=whole)) or "none"),
    ]
    return [(name, value) for name, value in fields if value]


def argument_lines(
    arguments: Mapping[str, Any], reached: Mapping[str, str] | None = None, *, whole: bool = False
) -> list[str]:
    """Each argument on a line: `path = "notes.md"`; a long one is cut."""
    led = {name: f" -> {_value(path, whole=whole)}" for name, path in (reached or {}).items()}
    return [f"{clean(name)} = {_value(value, whole=whole)}{led.get(name, '')}" for name, value in arguments.items()]


def _value(value: object, *, whole: bool) -> str:
    text = clean(json_line(value))
    return (
        text if whole or len(text) <= MOST_SHOWN else f"{shorten(text, MOST_SHOWN)} ({len(text):,} characters in all)"
    )


async def read_typed_text(stream: TextIO) -> str | None:
    """The next line that is typed, stripped; `None` at the end of the input. Ctrl-C ends the waiting."""
    descriptor = stream.fileno()
    line = b""
    while not line.endswith(b"\n"):
        await _readable(descriptor)
        # A terminal in canonical mode returns at most one line for each read, so nothing of a later answer is taken.
        if not (chunk := os.read(descriptor, _CHUNK)):
            break
        line += chunk
    # Where the input ended in the middle of a line, that counts as typed.
    return line.decode(errors="replace").strip() if line else None


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        # Also when the task is cancelled: a reader that stays registered would call a loop that is closed.
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
