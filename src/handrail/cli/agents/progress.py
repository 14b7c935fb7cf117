"""Reports the progress of a run: for a person as lines and streaming text, for a program as one JSON object a line.

Standard output carries only the answer. On a terminal, that is the text of the agent that was started, as the model
writes it; in a pipe it is the final answer, when it is complete; for a program it is the events. Which agent calls
which tool is reported on standard error.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from handrail.agents.run.events import (
    CallEnded,
    CallOutput,
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
from handrail.cli.agents.call_labels import CallLabels
from handrail.cli.agents.questions import shown_value
from handrail.cli.cells import NO_BREAK, cut, width_of
from handrail.cli.screen import Screen, format_time
from handrail.clock import Clock
from handrail.serde.formatting import count_noun

_MOST_OF_VALUE = 60
_MOST_OF_CONTENT = 200
_ROOM_IN_PIPE = 120
_LEAST_ROOM = 20
_INDENT = 2
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")

CANNOT_ASK = (
    "Without a terminal to ask on, calls that need approval are denied. Give --approve approve-all, --approve "
    "later with a stored session, or what is allowed in --rules FILE; no rule answers what a policy asks."
)
"""Printed once, when a call is denied without a terminal."""


class TextProgress:
    """Reports a run to a person. One for each run; it remembers which text has been printed."""

    __slots__ = ("_answer", "_has_explained", "_labels", "_screen", "_spoken", "_streams", "_texts")

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._streams = screen.out.is_terminal
        self._answer = screen.streamed()
        self._labels = CallLabels()
        self._texts: dict[tuple[str, ...], str] = {}
        self._spoken = ""
        self._has_explained = False

    def __call__(self, event: RunEvent) -> None:
        """Report an event."""
        match event:
            case RunStarted():
                begun = "resumed" if event.resumed else "started"
                self._remark(f"{_path(event.path)}: {begun} on {event.model}")
            case RunWarned():
                self._remark(f"{_path(event.path)}: warning: {event.message}")
            case TextDelta():
                self._text(event)
            case CallStarted():
                self._labels.start(event)
                self._shown_so_far(event.path)
                self._remark(f"{_path(event.path)}: {event.tool}({_arguments(event.arguments)})")
            case CallWaits() | CallOutput():
                self._goes_on(event)
            case CallEnded():
                self._call(event.path, event.call_id, event.tool, _outcome(event), _details(event))
            case QuestionAsked():
                self._end_line()  # the approver prints the question
            case QuestionDecided():
                self._decided(event)
            case RunEnded():  # pragma: no branch - these are all
                self._texts.pop(event.path, None)
                self._labels.end(event.path)
                self._remark(f"{_path(event.path)}: {event.status}, {_usage(event)}")

    def answer(self, output: str) -> None:
        """Print the final answer, unless its text has been streamed."""
        # In a pipe nothing has been streamed: the answer comes once, as a whole.
        self._end_line()
        if not self._streams:
            self._screen.raw(output)
        # Without a streamed text, or with a structured answer, the output has not been printed yet.
        elif self._spoken.strip() != output.strip():
            self._answer.write(output)
            self._answer.write("\n")

    def _text(self, event: TextDelta) -> None:
        # Texts of called agents would mix with that of the caller, so they are collected, and shown before their next
        # call.
        if self._streams and len(event.path) == 1:
            self._spoken += event.text
            self._answer.write(event.text)
        else:
            self._texts[event.path] = self._texts.get(event.path, "") + event.text

    def _shown_so_far(self, path: tuple[str, ...]) -> None:
        """Print an agent's text before a call, which is not part of its answer."""
        if said := self._texts.pop(path, "").strip():
            self._remark(f"{_path(path)}: {said}")
        if len(path) == 1:
            self._end_line()
            # What was said before a call is not part of the answer, so `answer` does not compare with it.
            self._spoken = ""

    def _call(self, path: tuple[str, ...], call_id: str, tool: str, outcome: str, details: str = "") -> None:
        """Report on a call in a line: which one it is, its outcome, and then the details, if there are any."""
        begin, end = f"{_path(path)}: ", f" {outcome}"
        width = _ROOM_IN_PIPE
        if self._screen.err.is_terminal:
            # The outcome is not divided between two lines.
            width, end = self._screen.err.width, f" {outcome.replace(' ', NO_BREAK)}"
        more = width - _INDENT
        room = max(width - width_of(begin) - width_of(end), _LEAST_ROOM)
        # With details there is a second line in any case.
        label = self._labels.label(path, call_id, tool, room=room + more if details else room, more=more)
        self._remark(f"{begin}{label}{end}{details}")

    def _goes_on(self, event: CallWaits | CallOutput) -> None:
        """Print what a call does before it ends: of a program each line, the last of which may not be complete."""
        if isinstance(event, CallWaits):
            self._call(event.path, event.call_id, event.tool, "waits", _wait(event))
        elif not event.text:
            quiet = f"has written nothing for {event.quiet_seconds:.0f} s, and still runs"
            self._call(event.path, event.call_id, event.tool, quiet)
        else:
            for line in event.text.splitlines():
                self._remark(f"{_path(event.path)}: {event.tool} | {line}")

    def _decided(self, event: QuestionDecided) -> None:
        call, decision = event.call, event.decision
        if decision.by == "nobody" and not self._has_explained:
            self._has_explained = True
            self._remark(CANNOT_ASK)
        elif decision.verdict == "later":
            self._call(call.path, call.call_id, call.tool, "waits for approval")
        elif decision.by == "remembered":
            verdict = "denied" if decision.verdict == "deny" else "allowed"
            self._call(call.path, call.call_id, call.tool, f"{verdict}, as answered before")

    def _remark(self, text: str) -> None:
        self._end_line()
        self._screen.remark(text)

    def _end_line(self) -> None:
        if self._spoken and not self._spoken.endswith("\n"):
            self._spoken += "\n"
            self._answer.write("\n")


class JsonProgress:
    """Prints every event as one line of JSON on standard output."""

    __slots__ = ("_clock", "_has_explained", "_screen")

    def __init__(self, screen: Screen, *, clock: Clock) -> None:
        self._screen = screen
        self._clock = clock
        self._has_explained = False

    def __call__(self, event: RunEvent) -> None:
        """Print an event."""
        self._screen.json(event_json(event, at=self._clock.now().isoformat()), lines=True)
        if isinstance(event, QuestionDecided) and event.decision.by == "nobody" and not self._has_explained:
            self._has_explained = True
            self._screen.remark(CANNOT_ASK)

    def answer(self, output: str) -> None:
        """Print nothing: the last event has the answer."""


def event_json(event: RunEvent, *, at: str) -> dict[str, Any]:
    """An event, for programs: `event` is the name of its class with underscores, `at` when it was reported."""
    name = _CAMEL.sub("_", type(event).__name__).lower()
    return {"event": name, "at": at, **_jsonable(event)}


def _jsonable(value: object) -> Any:  # noqa: ANN401 - any value of JSON
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # not a JSON number
    return value if isinstance(value, str | int | float | None) else str(value)


def _path(path: tuple[str, ...]) -> str:
    return "/".join(path)


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={shown_value(value, most=_MOST_OF_VALUE)}" for name, value in arguments.items())


def _wait(event: CallWaits) -> str:
    until = format_time(datetime.fromisoformat(event.until))
    return (
        f" for {event.owner or 'another call'}, which has claimed {event.key}; at most until {until} UTC, unless "
        "the lease is renewed"
    )


def _outcome(event: CallEnded) -> str:
    seconds = f"{event.seconds:.1f} s"
    if event.success:
        return f"ok, replayed, {seconds}" if event.replayed else f"ok, {seconds}"
    if event.outcome_unknown:
        return f"outcome unknown, rolled back, {seconds}"
    return f"refused, {seconds}" if event.refused else f"failed, rolled back, {seconds}"


def _details(event: CallEnded) -> str:
    if event.success:
        return ""
    # The tool is named at the start of the line already.
    content = " ".join(event.content.removeprefix(f"{event.tool} failed: ").split())
    return f": {cut(content, _MOST_OF_CONTENT)}{f' [{event.raised_at}]' if event.raised_at else ''}"


def _usage(event: RunEnded) -> str:
    return f"{count_noun(event.usage.input, 'token')} in, {event.usage.output:,} out"
