"""A call is interrupted at every line that it executes, and what became of its effect is counted.

A tracer notes the lines of Handrail and of the handler that a call executes, in all threads. The call is made anew for
each of them, and at that line it is interrupted in one of three ways:

| way | what happens | where |
|---|---|---|
| Ctrl-C | SIGINT is sent to the process | every line |
| cancel | the task of the call is cancelled; through the blocking entry, a `CancelledError` is raised | every line |
| exception | an exception is raised | lines of the pipeline, the session and the handler, in the thread of the caller |

After that the same call is made once more. Where a call has ended by an exception, and so without a message, another
one is interrupted at that line, and an equal call in another reply is made after it. A call whose task has returned its
message has one, also if the interrupt comes before what awaits it goes on. The effect must have happened at most once,
its row must not have been failed while it had happened, and the second call must be answered.
"""

from __future__ import annotations

import asyncio
import linecache
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple, get_args

import handrail
from handrail import store as stores
from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import External, Tool
from handrail.prompt.idempotency import slot_key
from handrail.runtime import Deadline, Session, ToolCall, ToolMessage
from handrail.session.calls import CallRef

Way = Literal["Ctrl-C", "cancel", "exception"]
Entry = Literal["blocking", "asyncio", "side by side"]
Handler = Literal["def", "async def"]

_SOURCE = str(Path(handrail.__file__).parent)
_RAISING = tuple(f"{_SOURCE}{os.sep}{part}{os.sep}" for part in ("runtime", "transaction", "session", "prompt"))
_LONGEST = timedelta(seconds=4)
"""How long the second call may take."""

_SHORT, _MOMENT = 0.002, 0.2
"""Seconds: what a signal or a thread takes at the most, mostly and always."""

_LEASE = timedelta(seconds=0.1)


class InterruptError(Exception):
    """Raised at a line."""


@dataclass(frozen=True, slots=True)
class Case:
    """How a call is made, and interrupted.

    Attributes:
        entry: the entry point; `side by side` is the blocking one with a reply of two calls, the second of which reads.
        handler: the kind of the handler.
        bounded: whether the tool has a timeout.
        way: how it is interrupted.
    """

    entry: Entry
    handler: Handler
    bounded: bool
    way: Way

    def __str__(self) -> str:
        return f"{self.entry}, {self.handler}{', timeout' if self.bounded else ''}, {self.way}"


CASES: tuple[Case, ...] = tuple(
    Case(*case)
    for case in product(get_args(Entry), get_args(Handler), (False, True), get_args(Way))
    # Calls that run side by side on the loop of their handlers are interrupted there by Ctrl-C alone.
    if case[0] != "side by side" or case[3] == "Ctrl-C"
)


@dataclass
class Count:
    """What came of the interrupted calls.

    Attributes:
        lines: how many lines a call was interrupted at.
        raised: how many of these calls ended by an exception.
        handed_over: how many others had returned their message when what awaits it was interrupted; more than one, and
            one more for each hundred lines, are a fault.
        faults: what was wrong: the line, and what was seen there.
    """

    lines: int = 0
    raised: int = 0
    handed_over: int = 0
    faults: list[str] = field(default_factory=list[str])


class Place(NamedTuple):
    """A line of a file, when it is executed for the `turn`th time of a call."""

    file: str
    line: int
    turn: int

    def __str__(self) -> str:
        return f"{os.path.relpath(self.file, _SOURCE)}:{self.line}"


class Tracer:
    """Notes the lines that are executed in all threads, and acts at one of them.

    Attributes:
        passed: the lines that have been executed, in their order.
        is_over: whether it has acted.
        act: called at the line, in its thread.
    """

    def __init__(self, at: Place | None, act: Callable[[], object], *, raises: bool) -> None:
        """Act at a line.

        Args:
            at: the line; `None` for none.
            act: called at the line, in its thread.
            raises: whether only lines count at which an exception may be raised.
        """
        self.passed: list[Place] = []
        self.is_over = False
        self.act = act
        self._at = at
        self._turns: Counter[tuple[str, int]] = Counter()
        self._raises = raises
        self._has_message = False
        self._thread = threading.get_ident()

    def trace(self, frame: FrameType) -> Callable[..., Any] | None:
        """Trace the lines of a frame, if it is one of Handrail or of the handler; see `sys.settrace`."""
        name = frame.f_code.co_filename
        # Python ignores what a finalizer raises.
        if frame.f_code.co_name == "__del__" or not (name.startswith(_SOURCE) or name == __file__):
            return None
        if name == __file__ and frame.f_code.co_name not in {"pay", "pay_async"}:
            return None
        if self._raises and not (name == __file__ or name.startswith(_RAISING)):
            return None
        entered: set[int] = set()

        def line(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
            if event == "line" and not _is_idle(frame, entered):
                self._line(frame)
            return line

        return line

    def _line(self, frame: FrameType) -> None:
        if _is_last(frame):
            self._has_message = True
        elif not self._has_message and (not self._raises or threading.get_ident() == self._thread):
            line = (frame.f_code.co_filename, frame.f_lineno)
            self._turns[line] += 1
            place = Place(*line, self._turns[line])
            if self._at is None:
                self.passed.append(place)
            elif place == self._at:
                self.is_over = True
                self.act()


@tool(effect="read")
def look() -> str:
    """Look around."""
    return "nothing to see"


def paying(
    paid: Counter[str], handler: Handler, *, timeout: timedelta | None, takes: float = 0, concurrent: bool = False
) -> Tool[Any, Any]:
    """A tool whose effect is that an order is counted; its handler takes so many seconds after that."""
    if handler == "def":

        @tool(effect=External(lease=_LEASE), timeout=timeout, concurrent=concurrent)
        def pay(order: str) -> str:
            """Pay an order."""
            paid[order] += 1
            if takes:
                time.sleep(takes)
            return "paid"

        return pay

    @tool(effect=External(lease=_LEASE), timeout=timeout, name="pay", concurrent=concurrent)
    async def pay_async(order: str) -> str:
        """Pay an order."""
        paid[order] += 1
        await asyncio.sleep(takes)
        return "paid"

    return pay_async


def _is_last(frame: FrameType) -> bool:
    """Whether a line returns the message: what interrupts the call from here on interrupts its caller, who has it."""
    code = frame.f_code
    is_step = code.co_name == "invoke" and frame.f_locals["call"].name == "pay"
    return is_step and linecache.getline(code.co_filename, frame.f_lineno).strip() == "return message"


def _is_idle(frame: FrameType, entered: set[int]) -> bool:
    """Whether a line executes nothing that can raise: it is `try:`, or that of a `with` block that is left.

    A tracer alone can raise there, such as before a lock is released.

    Args:
        frame: the frame that executes the line.
        entered: the lines of its blocks that have been entered; kept up to date.
    """
    line = frame.f_lineno
    text = linecache.getline(frame.f_code.co_filename, line).strip()
    if not text.startswith("with "):
        return text == "try:"
    is_entered = line in entered
    (entered.remove if is_entered else entered.add)(line)
    return is_entered


class World:
    """What happens outside, and the desk from which it is caused."""

    def __init__(self, url: str, case: Case) -> None:
        """Open the store.

        Args:
            url: the URL of the store.
            case: how calls are made.
        """
        self.paid: Counter[str] = Counter()
        self.handed_over = 0
        self._case = case
        self._url = url
        self._number = 0
        self.store = stores.open(url)
        self._open_session()

    def _open_anew(self) -> None:
        # Not the store: one in memory would be empty.
        self.session.close()
        self._open_session()

    def _open_session(self) -> None:
        # Of its own for each call: what is left of earlier ones would make it execute more lines, and others.
        self.session = Session.open(self.store, f"desk {self._number} ({self._case})")
        self.executor = self._executor()

    def close(self) -> None:
        """Close session and store."""
        self.session.close()
        self.store.close()

    def _executor(self, deadline: Deadline | None = None) -> ToolExecutor:
        timeout = timedelta(seconds=30) if self._case.bounded else None
        is_beside = self._case.entry == "side by side"
        pay = paying(self.paid, self._case.handler, timeout=timeout, concurrent=is_beside)
        return ToolExecutor([pay, look], session=self.session, deadline=deadline)

    def call(self) -> ToolCall:
        """A call of its own order, in its own session, and in memory in its own store, which looks at all its rows."""
        self._number += 1
        self.session.close()
        if self._url == "memory:":
            self.store.close()
            self.store = stores.open(self._url)
        self._open_session()
        return ToolCall("call", "pay", {"order": f"order {self._number}"})

    def interrupted(self, call: ToolCall, at: Place | None) -> tuple[Tracer, bool]:
        """Make a call, interrupt it at a line, and return the tracer, and whether the call ended by an exception."""
        run = self._asyncio if self._case.entry == "asyncio" else self._blocking
        return run(call, at)

    def _blocking(self, call: ToolCall, at: Place | None) -> tuple[Tracer, bool]:
        def act() -> None:
            sys.settrace(None)
            if self._case.way == "Ctrl-C":
                os.kill(os.getpid(), signal.SIGINT)
            else:
                raise InterruptError if self._case.way == "exception" else asyncio.CancelledError

        def run() -> None:
            if self._case.entry == "blocking":
                self.executor.execute(call, reply=_reply(call))
            else:
                self.executor.execute_all([call, ToolCall("look", "look", {})], reply=_reply(call))

        tracer = Tracer(at, act, raises=self._case.way != "Ctrl-C")
        return tracer, _traced(tracer, run)

    def _asyncio(self, call: ToolCall, at: Place | None) -> tuple[Tracer, bool]:
        tasks: list[asyncio.Task[ToolMessage]] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            task = asyncio.create_task(self.executor.execute_async(call, reply=_reply(call)))
            tasks.append(task)
            cancelled, caller = threading.Event(), threading.get_ident()

            def cancel() -> None:
                task.cancel()
                cancelled.set()

            def act() -> None:
                sys.settrace(None)
                if self._case.way == "Ctrl-C":
                    os.kill(os.getpid(), signal.SIGINT)
                elif self._case.way == "exception":
                    raise InterruptError
                elif threading.get_ident() == caller:
                    cancel()
                else:
                    loop.call_soon_threadsafe(cancel)
                    cancelled.wait(_MOMENT)

            tracer.act = act
            await task

        tracer = Tracer(at, _nothing, raises=self._case.way == "exception")
        raised = _traced(tracer, lambda: asyncio.run(main()))
        # Another thread may interrupt it when its task has a message, and what awaits that has not.
        has_message = raised and any(not task.cancelled() and task.exception() is None for task in tasks)
        self.handed_over += has_message
        return tracer, raised and not has_message

    def has_happened(self, call: ToolCall) -> bool:
        """Whether the effect of a call has happened."""
        return self.paid[_order(call)] > 0

    def fault(self, call: ToolCall, *, as_new: bool) -> str:
        """Make the call once more, or one that equals it; returns what is wrong then, empty if nothing is."""
        time.sleep(_SHORT)
        reply = f"{'a later ' if as_new else ''}{_reply(call)}"
        order = _order(call)
        before = self._status(call)
        if self.paid[order] and before == "failed":
            return "it had happened, and its row was failed"
        begun = time.monotonic()
        try:
            answer = self._again(call, reply)
        except Exception as error:  # noqa: BLE001 - the session is opened anew, as a program does
            self._open_anew()
            try:
                answer = self._again(call, reply)
            except Exception as again:  # noqa: BLE001 - reported
                return f"the second call raised {error!r}, and {again!r} in a session that was opened anew"
        if self.paid[order] > 1:
            return f"it happened {self.paid[order]} times; its row was {before}"
        if time.monotonic() - begun > _LONGEST.total_seconds() / 2:
            self._open_anew()
            return f"the second call waited for the first, which had ended: {answer}"
        after = self._status(call)
        if after == "running" or (after == "failed" and self.paid[order] and not as_new):
            return f"its row is {after}: {answer}"
        return ""

    def _again(self, call: ToolCall, reply: str) -> str:
        if self._case.entry != "asyncio":
            return self._executor(Deadline.after(_LONGEST)).execute(call, reply=reply).content
        answer = self.executor.execute_async(call, reply=reply)
        return asyncio.run(asyncio.wait_for(answer, _LONGEST.total_seconds())).content

    def _status(self, call: ToolCall) -> str:
        row = self.store.get(self.session.session_id, slot_key(CallRef(_reply(call), call.id)))
        return "absent" if row is None else row.status


def _order(call: ToolCall) -> str:
    return call.arguments["order"] if isinstance(call.arguments, dict) else ""


def _reply(call: ToolCall) -> str:
    return f"reply to {call.arguments!r}"


def _nothing() -> None:
    """Before the call is made."""


def _traced(tracer: Tracer, act: Callable[[], object]) -> bool:
    """Run something under a tracer; returns whether it raised."""
    _ACTIVE[:] = [tracer]
    before = sys.gettrace()
    sys.settrace(_trace)
    try:
        act()
        if tracer.is_over:
            time.sleep(_SHORT)  # a signal that another thread has sent comes a moment later
    except BaseException:  # noqa: BLE001 - that is what it is interrupted for
        return True
    finally:
        sys.settrace(before)
        _ACTIVE.clear()
    return False


_ACTIVE: list[Tracer] = []
"""The tracer of the call that is traced; threads that serve several calls ask for it here."""


def _trace(frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
    return _ACTIVE[0].trace(frame) if _ACTIVE else None


def play(url: str, case: Case, *, stride: int = 1) -> Count:
    """Interrupt a call at every line, or every `stride`th one, over a store."""
    before = threading.gettrace()
    threading.settrace(_trace)
    count, world = Count(), World(url, case)
    try:
        world.interrupted(world.call(), None)  # the first one makes what later ones find
        tracer, _ = world.interrupted(whole := world.call(), None)
        if not world.has_happened(whole):
            count.faults.append("nothing was interrupted: a call that nobody interrupts has paid nothing")
        for at in tracer.passed[::stride]:
            if _interrupt(world, at, count, as_new=False):
                _interrupt(world, at, count, as_new=True)
        time.sleep(_MOMENT)  # handlers that have started late
        count.faults += [f"{order} happened {times} times" for order, times in world.paid.items() if times > 1]
        count.handed_over = world.handed_over
        if count.handed_over > 1 + count.lines // 100:
            count.faults.append(f"{count.handed_over} calls had their message when what awaits it was interrupted")
    finally:
        threading.settrace(before)
        world.close()
    return count


def _interrupt(world: World, at: Place, count: Count, *, as_new: bool) -> bool:
    """Interrupt a call at a line, and make it or an equal one again; returns whether it ended by an exception."""
    call = world.call()
    tracer, raised = world.interrupted(call, at)
    if not tracer.is_over:  # threads do not always execute the same lines
        return False
    count.lines += 1
    count.raised += raised
    if fault := world.fault(call, as_new=as_new and raised):
        count.faults.append(f"{at}: {fault}")
    return raised
