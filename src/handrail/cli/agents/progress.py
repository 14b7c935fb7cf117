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
from handrail.cli.agents.questions import shown_value
from handrail.cli.screen import Screen, format_time
from handrail.clock import Clock
from handrail.serde.formatting import count_noun

_MOST_OF_VALUE = 60
_MOST_OF_CONTENT = 200
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")

CANNOT_ASK = (
    "Without a terminal to ask on, calls that need approval are denied. Give --approve approve-all, --approve "
    "later with a stored session, or what is allowed in --rules FILE."
)
"""Printed once, when a call is denied without a terminal."""


class TextProgress:
    """Reports a run to a person. One for each run; it remembers which text has been printed."""

    __slots__ = ("_has_explained", "_screen", "_spoken", "_streams", "_texts")

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._streams = screen.out.is_terminal
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
                self._shown_so_far(event.path)
                self._remark(f"{_path(event.path)}: {event.tool}({_arguments(event.arguments)})")
            case CallWaits():
                self._remark(f"{_path(event.path)}: {_wait(event)}")
            case CallEnded():
                self._remark(f"{_path(event.path)}: {event.tool} {_outcome(event)}")
            case QuestionAsked():
                self._end_line()  # the approver prints the question
            case QuestionDecided():
                self._decided(event)
            case RunEnded():  # pragma: no branch - these are all
                self._texts.pop(event.path, None)
                self._remark(f"{_path(event.path)}: {event.status}, {_usage(event)}")

    def answer(self, output: str) -> None:
        """Print the final answer, unless its text has been streamed."""
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

    def _shown_so_far(self, path: tuple[str, ...]) -> None:
        """Print an agent's text before a call, which is not part of its answer."""
        if said := self._texts.pop(path, "").strip():
            self._remark(f"{_path(path)}: {said}")
        if len(path) == 1:
            self._end_line()
            # What was said before a call is not part of the answer, so `answer` does not compare with it.
            self._spoken = ""

    def _decided(self, event: QuestionDecided) -> None:
        decision = event.decision
        if decision.by == "nobody" and not self._has_explained:
            self._has_explained = True
            self._remark(CANNOT_ASK)
        elif decision.by == "remembered":
            self._remark(f"{_path(event.call.path)}: {event.call.tool} {decision.verdict}, as answered before")

    def _remark(self, text: str) -> None:
        self._end_line()
        self._screen.remark(text)

    def _end_line(self) -> None:
        if self._spoken and not self._spoken.endswith("\n"):
            self._spoken += "\n"
            self._screen.stream("\n")


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
        f"{event.tool} waits for {event.owner or 'another call'}, which has claimed {event.key}; at most until {until} "
        "UTC, unless the lease is renewed"
    )


def _outcome(event: CallEnded) -> str:
    if event.success:
        replayed = " (replayed: it has happened before)" if event.replayed else ""
        return f"ok, {event.seconds:.1f} s{replayed}"
    # The tool is named at the start of the line already.
    content = " ".join(event.content.removeprefix(f"{event.tool} failed: ").split())
    place = f" [{event.raised_at}]" if event.raised_at else ""
    return f"failed: {content[:_MOST_OF_CONTENT]}{'...' if len(content) > _MOST_OF_CONTENT else ''}{place}"


def _usage(event: RunEnded) -> str:
    return f"{count_noun(event.usage.input, 'token')} in, {event.usage.output:,} out"
