"""Asks a person on a terminal whether a call may run.

Everything shown was written by a model or an untrusted tool, so control characters are escaped, and each argument is
JSON on a line of its own, so that no value can look like something else.

The answer is read on the event loop, so that Ctrl-C ends the waiting at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio import CancelledError
from collections.abc import Mapping
from typing import Any, TextIO

from handrail.agents.approval.decisions import Answer, GatedCall
from handrail.cli.screen import Screen, clean
from handrail.serde.formatting import json_line, shorten

MOST_SHOWN = 300
"""How many characters of an argument are shown, unless the person requests all of it."""

_LATER_NEEDS_A_STORE = "Later is only for a stored session: give --store. This call waits for an answer now."

_CHUNK = 4096


class TerminalAsker:
    """Asks on standard error, and reads the answer from the terminal; one question at a time."""

    __slots__ = ("_can_wait", "_screen")

    def __init__(self, screen: Screen, *, can_wait: bool) -> None:
        """Ask on `screen`; with `can_wait`, a question may be left open."""
        self._screen = screen
        self._can_wait = can_wait

    async def __call__(self, call: GatedCall) -> Answer:
        """Ask about a call until there is an answer; the end of the input counts as no."""
        # On standard error: standard output is for the answer of the agent.
        self._screen.record(question_fields(call), aside=True)
        while True:
            typed = await self._typed(_choices(can_wait=self._can_wait))
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
                case "l" | "later":
                    self._screen.remark(_LATER_NEEDS_A_STORE)
                case "w":
                    self._screen.record(question_fields(call, whole=True), aside=True)
                case _:
                    pass  # another key is not an answer: ask again

    async def _typed(self, prompt: str) -> str | None:
        # Directly before the prompt, so that only what is typed after it counts.
        forget_typed(sys.stdin)
        self._screen.prompt(prompt)
        try:
            typed = await read_typed_text(sys.stdin)
        # Ctrl-C cancels the task; the line of the question is ended, so that the next message starts on its own line.
        except CancelledError:
            self._screen.end_prompt()
            raise
        if typed is None:
            self._screen.end_prompt()
        return typed


def question_fields(call: GatedCall, *, whole: bool = False) -> list[tuple[str, str]]:
    """What a person must know about a call to decide; `whole` for its arguments uncut."""
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
    """Each argument on a line: `path = "notes.md"`; a long one is cut, and its length is added.

    A path that leads through a link is shown with its target: `path = "l" -> "secret.txt"`.
    """
    led = {name: f" -> {shown_value(path, whole=whole)}" for name, path in (reached or {}).items()}
    return [
        f"{clean(name)} = {shown_value(value, whole=whole)}{led.get(name, '')}" for name, value in arguments.items()
    ]


def shown_value(value: object, *, whole: bool = False) -> str:
    """A value as JSON, in one line without control characters; a long one is cut, and its length is added."""
    text = json_line(value)
    if whole or len(text) <= MOST_SHOWN:
        return clean(text)
    return f"{shorten(clean(text), MOST_SHOWN)} ({len(text):,} characters in all)"


def _choices(*, can_wait: bool) -> str:
    choices = ["y = yes", "n = no", "a = always with these arguments", "r = always this tool"]
    choices += ["l = later"] if can_wait else []
    choices += ["w = show the whole arguments"]
    return f"May it run? [{', '.join(choices)}]"


if sys.platform != "win32":  # pragma: no branch - there, what was typed ahead is read as well
    import termios


def forget_typed(stream: TextIO) -> None:
    """Discard what was typed so far: it must not answer a question that was not shown yet."""
    if sys.platform != "win32":  # pragma: no branch
        termios.tcflush(stream.fileno(), termios.TCIFLUSH)


async def read_typed_text(stream: TextIO) -> str | None:
    """The next line that is typed, stripped; `None` at the end of the input.

    No thread is left that would block on the keyboard after the run.
    """
    descriptor = stream.fileno()
    line = b""
    while not line.endswith(b"\n"):
        await _readable(descriptor)
        # A terminal in canonical mode returns at most one line for each read, so nothing of a later answer is taken.
        chunk = os.read(descriptor, _CHUNK)
        if not chunk and not line:
            return None
        # The input ended in the middle of a line, which counts as typed.
        if not chunk:
            break
        line += chunk
    return line.decode(errors="replace").strip()


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        # Also when the task is cancelled: a reader that stays registered would call a loop that is closed.
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
