"""Reports the progress of a run: for a person as lines and streaming text, for a program as one JSON object a line.

Standard output carries only the answer. On a terminal, that is the text of the agent that was started, as the model
writes it; in a pipe it is the final answer, when it is complete; for a program it is the events. Which agent calls
which tool is reported on standard error, and so are the problems with an agent or its run.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from handrail.agents.modules import error_location
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
from handrail.cli.screen import Screen, format_call, format_time, show_traceback
from handrail.clock import Clock
from handrail.errors import AgentError, HandrailError
from handrail.serde.formatting import count_noun, shorten

_MOST_OF_CONTENT = 200
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")

CANNOT_ASK = (
    "Without a terminal to ask on, calls that need approval are denied. Give --approve approve-all, --approve "
    "later with a stored session, or what is allowed in --rules FILE; no rule answers what a policy asks."
)
"""Printed once, when a call is denied without a terminal."""


class TextProgress:
    """Reports a run to a person. One for each run; it remembers which text has been printed.

    A call has a line when it starts and one when it ends, with its arguments cut. Equal calls of a reply are numbered.
    """

    __slots__ = ("_has_explained", "_labels", "_screen", "_spoken", "_streams", "_texts")

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._streams = screen.out.is_terminal
        # Of the last reply of each agent: when it has another one, the calls of the one before have ended.
        self._labels: dict[tuple[str, ...], tuple[str | None, dict[str, str]]] = {}
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
                self._remark(f"{_path(event.path)}: {self._started(event)}")
            case CallWaits() | CallOutput():
                self._goes_on(event)
            case CallEnded():
                self._call(event.path, event.call_id, event.tool, f"{_outcome(event)}{_details(event)}")
            case QuestionAsked():
                self._end_line()  # the approver prints the question
            case QuestionDecided():
                self._decided(event)
            case RunEnded():  # pragma: no branch - these are all
                self._texts.pop(event.path, None)
                self._labels.pop(event.path, None)
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

    def _started(self, event: CallStarted) -> str:
        """The label of a call that starts."""
        reply, labels = self._labels.get(event.path, (None, {}))
        if reply != event.reply or not labels:
            _, labels = self._labels[event.path] = (event.reply, {})
        label = format_call(event.tool, event.arguments)
        number = 1 + sum(other.partition(" #")[0] == label for other in labels.values())
        labels[event.call_id] = f"{label} #{number}" if number > 1 else label
        return labels[event.call_id]

    def _call(self, path: tuple[str, ...], call_id: str, tool: str, outcome: str) -> None:
        """Report on a call in a line; nothing is known of the arguments of one that never started."""
        _, labels = self._labels.get(path, (None, dict[str, str]()))
        self._remark(f"{_path(path)}: {labels.get(call_id, f'{tool}(…)')} {outcome}")

    def _goes_on(self, event: CallWaits | CallOutput) -> None:
        """Print what a call does before it ends: of a program each line, the last of which may not be complete."""
        if isinstance(event, CallWaits):
            self._call(event.path, event.call_id, event.tool, f"waits{_wait(event)}")
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


def _usage(event: RunEnded) -> str:
    return f"{count_noun(event.usage.input, 'token')} in, {event.usage.output:,} out"


# ------------------------------------------------------------------------------------------------------------ problems


def problems_of(error: HandrailError) -> list[HandrailError]:
    """The problems that an error contains, in order, each once; the error itself if it is a single one."""
    if not isinstance(error, AgentError) or not error.problems:
        return [error]
    return once(problem for part in error.problems for problem in problems_of(part))


def once(problems: Iterable[HandrailError]) -> list[HandrailError]:
    """The problems, each message once."""
    # A dictionary preserves the order, and the last of several equal messages.
    return list({str(problem): problem for problem in problems}.values())


def print_problems(screen: Screen, problems: Iterable[HandrailError]) -> None:
    """Print problems; if tracebacks are shown, those of all problems come first."""
    for problem in (problems := list(problems)):
        show_traceback(screen, problem)
    for problem in problems:
        screen.problem(str(problem))


def format_problem(error: BaseException, folder: Path) -> str:
    """An exception of other code: its type, message and notes, and where in the user's code it was raised.

    Args:
        error: the exception.
        folder: the folder of the project, from which paths are given.
    """
    notes = "; ".join(getattr(error, "__notes__", ()))
    place = error_location(error, folder)
    return f"{type(error).__name__}: {error}{f' ({notes})' if notes else ''}{f' [{place}]' if place else ''}"
