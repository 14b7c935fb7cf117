"""Ctrl-C at any point of a durable call through the synchronous entry leaves a session and a store that can be used."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import handrail
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.interrupts import HeldInterrupts, allow_interrupts, raise_held_interrupt
from handrail.prompt.signature import Effect
from handrail.runtime import Session, ToolCall
from tests.extent import step
from tests.kit import echo, executor, tool

pytestmark = [
    pytest.mark.usefixtures("ctrl_c"),
    # Of a call that was interrupted before it had begun.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]

SOURCE = str(Path(handrail.__file__).parent)
MOST_ENTRIES = 6
"""So often a function is interrupted that is entered more often."""

Entry = tuple[str, int, str]


class Tracer:
    """Counts the functions of Handrail that are entered, and sends SIGINT when one is entered for the nth time."""

    def __init__(self, target: tuple[Entry, int] | None = None) -> None:
        self.entered = Counter[Entry]()
        self._target = target

    def __call__(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return None
        if event == "call":
            entry = (code.co_filename, code.co_firstlineno, code.co_name)
            self.entered[entry] += 1
            if (entry, self.entered[entry]) == self._target:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return None

    def run(self, act: Callable[[], object]) -> bool:
        """Run something; returns whether Ctrl-C was raised."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            act()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


class Desk:
    """Two sessions of one store, each with an executor."""

    def __init__(self, folder: Path, effect: Effect, opened: ExitStack) -> None:
        url = f"sqlite:///{folder / 'desk.db'}"
        self.kept = opened.enter_context(store.open(url, durability="normal", busy=timedelta(seconds=1)))
        pay = tool("pay", echo, effect=effect)
        self.sessions = [opened.enter_context(Session.open(self.kept, name)) for name in "ab"]
        self.own, self.other = (executor(pay, session=session) for session in self.sessions)


def pay(door: ToolExecutor, call_id: str) -> str:
    """Make a call, each with arguments of its own; returns what the model reads."""
    return door.execute(ToolCall(call_id, "pay", {"text": call_id}), reply="r").content


def points(folder: Path, effect: Effect) -> Iterator[tuple[Entry, int]]:
    """Each entry of a function in a call; in the short form every seventh."""
    folder.mkdir()
    with ExitStack() as opened:
        desk = Desk(folder, effect, opened)
        pay(desk.own, "first")
        tracer = Tracer()
        tracer.run(lambda: pay(desk.own, "second"))
        # Python ignores what a finalizer raises, Ctrl-C included.
        entered = [(entry, times) for entry, times in tracer.entered.items() if entry[2] != "__del__"]
        found = [(entry, nth) for entry, times in entered for nth in range(1, min(times, MOST_ENTRIES) + 1)]
    yield from found[:: step(7)]


@pytest.mark.parametrize("effect", ["state", "external"])
def test_ctrl_c_at_any_point_leaves_the_session_and_the_store_usable(effect: Effect, tmp_path: Path) -> None:
    """It is raised, and the next calls of this session and of another one are made."""
    with ExitStack() as opened:
        desk = Desk(tmp_path, effect, opened)
        for number, point in enumerate(points(tmp_path / "counted", effect)):
            Tracer(point).run(partial(pay, desk.own, f"interrupted {number}"))
            for door in (desk.own, desk.other):
                assert pay(door, f"next {number}") == f"next {number}", point


def interrupted(times: int, error: Exception | None = None) -> list[str]:
    """What a block has done that holds Ctrl-C back and is interrupted so often."""
    done: list[str] = []
    with HeldInterrupts():
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
            done.append("went on")
        if error is not None:
            raise error
    return done


def test_ctrl_c_is_raised_at_the_end_of_what_holds_it() -> None:
    """Once, however often it came; what the block raises itself is its cause."""
    assert interrupted(0) == []
    with pytest.raises(KeyboardInterrupt):
        interrupted(2)
    with pytest.raises(ValueError, match="no"):
        interrupted(0, ValueError("no"))
    error = ValueError("no")
    with pytest.raises(KeyboardInterrupt) as raised:
        interrupted(1, error)
    assert raised.value.__cause__ is error
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_is_raised_within_what_holds_the_first() -> None:
    """Code that never ends can be left."""
    with HeldInterrupts():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise_held_interrupt_once()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def raise_held_interrupt_once() -> None:
    """The first is raised where it is asked for, and not once more at the end."""
    with pytest.raises(KeyboardInterrupt):
        raise_held_interrupt()
    raise_held_interrupt()


def test_ctrl_c_is_raised_at_once_in_what_allows_it() -> None:
    """One that was held back, too, and before anything is begun; after that it is held back again."""
    with HeldInterrupts():
        for begun in (True, False):
            done: list[str] = []
            if not begun:
                signal.raise_signal(signal.SIGINT)

            def body(done: list[str] = done) -> None:
                done.append("begun")
                signal.raise_signal(signal.SIGINT)
                done.append("went on")

            with pytest.raises(KeyboardInterrupt):
                allow_interrupts(body)
            assert done == ["begun"][: int(begun)]
    assert interrupted(0) == []
    with pytest.raises(KeyboardInterrupt):
        interrupted(1)


def test_a_handler_of_the_program_is_left_alone() -> None:
    """It decides itself what a signal means."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        with HeldInterrupts():
            signal.raise_signal(signal.SIGINT)
            assert came == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)
