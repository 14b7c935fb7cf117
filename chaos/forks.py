"""Forks of the refund desk: its day is forked at random calls, and each fork goes on from there.

The day is the script of the demo, made by a loop of its own over a stored session and the payment service, which pays
whatever it is asked for. A fork gets the files as they were when its call had ended, and the rest of the script: all
calls of the reply that it was forked in, and of those after it. In half of the rounds it names the later replies anew,
as when a model is asked again; then only the keys of refunds say what has been paid. The later forks are mostly forks
of forks.

When all have ended, the service has paid exactly what it had paid after the day, and each fork has the slices and the
files of the day.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Self

from handrail import store as stores
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import PlanningStrategy, PlanningToolsSection, VfsToolsSection
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate, Tool, ToolsSection
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.session import CallRef, SlicePolicy
from handrail.store import Store
from handrail.testing.script_file import read_script

EXAMPLE = Path(__file__).parents[1] / "examples" / "refund_desk"
"""The demo whose desk is forked."""

TODAY = date(2026, 3, 4)
"""What the reports are dated with."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of the script: its name, and the calls in it."""

    name: str
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """The end of a call, from which the day can be forked.

    Attributes:
        session: the id of the session that made the call.
        call: the call.
        files: the files when it had ended.
        replies: the reply of the call, and those after it.
    """

    session: str
    call: CallRef
    files: dict[str, bytes]
    replies: tuple[Reply, ...]


@dataclass
class Count:
    """What came of the forks.

    Attributes:
        forks: how many there were.
        replayed: how many of their calls were answered without running.
        faults: what was wrong, in words.
    """

    forks: int = 0
    replayed: int = 0
    faults: list[str] = field(default_factory=list[str])


def read_replies() -> tuple[Reply, ...]:
    """The replies of the demo that have calls."""
    replies: list[Reply] = []
    for number, reply in enumerate(read_script(EXAMPLE / "model.yaml").replies):
        calls = [
            ToolCall(one.id, one.name, one.arguments if isinstance(one.arguments, str) else json.dumps(one.arguments))
            for one in reply.calls
        ]
        replies.append(Reply(f"reply-{number}", tuple(calls)))
    return tuple(reply for reply in replies if reply.calls)


def read_inbox() -> dict[str, bytes]:
    """The files in the morning."""
    return {path.name: path.read_bytes() for path in sorted((EXAMPLE / "inbox").iterdir())}


def read_all(files: InMemoryFilesystem) -> dict[str, bytes]:
    """All files."""
    return {stat.path: files.read_bytes(stat.path) for stat in files.glob("**") if stat.kind == "file"}


def read_state(session: Session) -> dict[str, list[str]]:
    """The items of all slices that can be rolled back."""
    kinds = [kind for kind in session.kinds if getattr(kind, "slice_policy", SlicePolicy.STATE) is SlicePolicy.STATE]
    return {kind.__qualname__: [repr(item) for item in session[kind].all()] for kind in kinds}


class Desk:
    """The desk over one store; `by_key` says whether refunds have a key of the session, or are named by their calls.

    Attributes:
        day: the session of the day.
        moments: where it can be forked, and where its forks can.
        end: the slices and files at the end of the day.
    """

    def __init__(self, folder: Path, store: Store, *, by_key: bool) -> None:
        self._folder = folder
        self._store = store
        self._by_key = by_key
        self.day: str = f"day-by-{'key' if by_key else 'call'}"
        self._stack = ExitStack()
        self.moments: list[Moment] = []
        self.end: object = None

    def __enter__(self) -> Self:
        if str(EXAMPLE) not in sys.path:
            sys.path.append(str(EXAMPLE))
        from payments import running_service  # noqa: PLC0415 - a module of the example, as those below
        from shop import Shop  # noqa: PLC0415

        self._shop = Shop.make(self._folder / "shop.db")
        self._payments = self._stack.enter_context(running_service())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def paid(self) -> Mapping[str, int]:
        """How often the service has refunded each order."""
        return self._payments.counts()

    def work_for_a_day(self) -> None:
        """Make all calls of the script, and note where it can be forked."""
        with Session.open(self._store, self.day) as session:
            self.end = self._work(session, read_inbox(), read_replies())[0]

    def go_on(self, moment: Moment, name: str, *, rename: bool) -> tuple[object, int]:
        """Fork a session at a moment and make the rest of the calls; returns its end, and how many were replayed."""
        first, *others = moment.replies
        replies = (first, *(replace(reply, name=f"{name}-{reply.name}") if rename else reply for reply in others))
        with (
            Session.open(self._store, moment.session) as origin,
            origin.fork(session_id=name, at=moment.call) as session,
        ):
            return self._work(session, moment.files, replies)

    def _work(self, session: Session, begin: Mapping[str, bytes], replies: Sequence[Reply]) -> tuple[object, int]:
        files, ended = InMemoryFilesystem(begin), list[tuple[ToolInvoked, dict[str, bytes]]]()
        session.dispatcher.subscribe(ToolInvoked, lambda event: ended.append((event, read_all(files))))
        with self._executor(session, files) as executor:
            for place, reply in enumerate(replies):
                executor.execute_all(reply.calls, reply=reply.name)
                self.moments += [
                    Moment(session.session_id, CallRef(event.reply, event.call.id), there, tuple(replies[place:]))
                    for event, there in ended
                ]
                ended.clear()
        replayed = sum(event.replayed for event in session[ToolInvoked] if event.session_id == session.session_id)
        return (read_state(session), read_all(files)), replayed

    def _executor(self, session: Session, files: InMemoryFilesystem) -> ToolExecutor:
        from desk import DESK_TOOLS, desk_policies  # noqa: PLC0415
        from payments import Payments  # noqa: PLC0415
        from refunds import Rules, Supervisor  # noqa: PLC0415
        from shop import Shop  # noqa: PLC0415

        tools = [self._declare(tool) for tool in DESK_TOOLS]
        section = ToolsSection(title="Desk", key="desk", tools=tools, policies=desk_policies())
        planning = PlanningToolsSection(session=session, strategy=PlanningStrategy.PLAN_ACT_REFLECT)
        template = PromptTemplate[None](ns="chaos", key="forks", sections=[section, planning, VfsToolsSection()])
        resources = {Shop: self._shop, Payments: self._payments, Rules: Rules(TODAY), Filesystem: files}
        prompt = Prompt(template).bind(resources=resources)
        return ToolExecutor(prompt=prompt, session=session, approver=Supervisor(self._shop))

    def _declare(self, tool: Tool[Any, Any]) -> Tool[Any, Any]:
        if tool.idempotency is None:
            return tool
        key = replace(tool.idempotency, scope="session") if self._by_key else None
        return replace(tool, idempotency=key, effect="external")


def play(url: str, folder: Path, *, forks: int, dice: random.Random) -> Count:
    """Fork two days at random calls, over one store: one of refunds with keys, and one without."""
    count = Count()
    for by_key in (True, False):
        with stores.open(url) as store, Desk(folder, store, by_key=by_key) as desk:
            desk.work_for_a_day()
            paid = desk.paid
            for number in range(forks // 2):
                moment = dice.choice(desk.moments)
                end, replayed = desk.go_on(moment, f"{desk.day}-{number}", rename=by_key and number % 2 == 1)
                count.forks += 1
                count.replayed += replayed
                where = f"{desk.day}-{number}, forked from {moment.session} at {moment.call}"
                if end != desk.end:
                    count.faults.append(f"{where}: its slices or files are not those of the day")
                if not paid or desk.paid != paid:
                    count.faults.append(f"{where}: the service has paid {desk.paid}, not {paid}")
    return count
