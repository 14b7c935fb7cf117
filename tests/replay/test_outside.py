"""What is outside of a replay stays as it is: what has acted in the record, other ledgers, databases and files."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from handrail import store as stores
from handrail import tool as function_tool
from handrail.adapters.run_task import RunTask
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PlanRefusedError, SessionError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.replay import replay
from handrail.runtime import EffectLedger, Session, ToolCall
from handrail.store import Store
from handrail.transaction import UnitStore, enlist
from handrail.undo import dry_run
from tests.architecture.sources import ROOT
from tests.docs.kit import DOCS
from tests.kit import Note, echo, executor, raises, tool
from tests.wording import Wording

P = TypeVar("P")
R = TypeVar("R")

pytestmark = pytest.mark.anyio


@dataclass
class Outside:
    """What is done outside.

    Attributes:
        did: what was done, in order.
        answers: whether it says what has come of it.
    """

    did: list[str] = field(default_factory=list[str])
    answers: bool = True

    def act(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Act."""
        self.did.append(params.text)
        if not self.answers:
            raise TimeoutError("no answer")
        return ToolResult.ok(params)


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    """A store."""
    with stores.open(f"sqlite:///{tmp_path / 'desk.db'}") as opened:
        yield opened


@pytest.fixture
def outside() -> Outside:
    """The outside."""
    return Outside()


def making(*tools: Tool[Any, Any], **options: Any) -> Callable[[Session], ToolExecutor]:
    """What makes the executor of some tools."""
    return lambda session: executor(*tools, session=session, **options)


def record(store: Store, make: Callable[[Session], ToolExecutor], *names: str, session_id: str = "s") -> None:
    """Have a session call tools, with one text, each in a reply of its own."""
    with Session.open(store, session_id) as session, make(session) as loop:
        for number, name in enumerate(names):
            loop.execute(ToolCall("c", name, {"text": "a"}), reply=f"r{number}")


async def differences(store: Store, make: Callable[[Session], ToolExecutor]) -> Sequence[tuple[str, str]]:
    """In what a replay of all of it differs."""
    outcome = await replay("s", make, store=store, all=True)
    return [(one.call, one.kind) for one in outcome.differences]


class Undeclared(Tool[P, R]):
    """A tool of a server that does not say what it does."""

    @property
    def may_act(self) -> bool:
        return True


async def test_tool_that_settings_have_made_a_reading_one_does_not_run(store: Store, outside: Outside) -> None:
    """Though its effect had no key."""
    server = Undeclared[Note, Note](name="pay", description="Note something.", handler=outside.act)
    record(store, making(server), "pay")
    assert await differences(store, making(server)) == []
    assert await differences(store, making(tool("pay", outside.act))) == [("r0/c", "outcome")]
    assert outside.did == ["a"]


async def test_new_call_of_what_acted_then_does_not_run(store: Store, outside: Outside) -> None:
    """Also if a session below made the only recorded one."""

    def make(*, nests: bool, effect: Any) -> Callable[[Session], ToolExecutor]:
        pay = tool("pay", outside.act, effect=effect)

        def work(params: Note, *, context: ToolContext) -> ToolResult[Note]:
            if nests:
                executor(pay, session=context.session).execute(ToolCall("n", "pay", {"text": "b"}))
            return ToolResult.ok(params)

        return making(tool("work", work))

    record(store, make(nests=False, effect="external"), "work")
    record(store, making(tool("pay", outside.act, effect="external")), "pay", session_id="s/below")
    found = await differences(store, make(nests=True, effect="state"))
    assert [kind for _, kind in found] == ["further call"]
    assert outside.did == ["a"]


@pytest.mark.parametrize(
    "today, is_equal",
    [(External(), True), (External(repeat_unknown="allow"), False), (External(on_orphan="retry"), False)],
)
async def test_repeat_in_doubt_is_answered_if_it_is_refused_today(
    store: Store, outside: Outside, today: External, is_equal: bool
) -> None:
    """What would act a second time by now is a difference."""
    outside.answers = False
    record(store, making(tool("pay", outside.act, effect=External())), "pay", "pay")
    found = await differences(store, making(tool("pay", outside.act, effect=today)))
    assert (found, outside.did) == ([] if is_equal else [("r1/c", "outcome")], ["a"])


def test_program_of_the_tutorial_replays_equal_after_its_kill(tmp_path: Path) -> None:
    """The payment in which it was killed was begun, and refused when it was started again."""
    page = (DOCS / "tutorial" / "first-durable-session.md").read_text(encoding="utf-8")
    text = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "desk.py").write_text(text, encoding="utf-8")
    for words, code in (("A-2",), -9), ((), 0):
        ran = subprocess.run(
            [sys.executable, "desk.py", *words], cwd=tmp_path, env={"PYTHONPATH": str(ROOT / "src")}, check=False
        )
        assert ran.returncode == code

    @function_tool(effect="external")
    def pay(order: str) -> str:
        """Pay an order."""
        raise AssertionError(order)

    def desk(session: Session) -> ToolExecutor:
        return ToolExecutor([pay], session=session)

    with stores.open(f"sqlite:///{tmp_path / 'desk.db'}") as store:
        outcome = asyncio.run(replay("monday", desk, store=store))
    assert (outcome.equal, outcome.compared) == (True, 2), outcome.differences


async def rehearse(store: Store, make: Callable[[Session], ToolExecutor]) -> object:
    """A dry run of a call."""

    async def work(task: RunTask) -> object:
        with make(task.session) as loop:
            return await loop.execute_async(ToolCall("c", loop.tools[0].name, {"text": "a"}), reply="r0")

    return await dry_run(work, store=store)


async def repeat(store: Store, make: Callable[[Session], ToolExecutor]) -> object:
    """A replay."""
    return await replay("s", make, store=store)


ON_COPIES = pytest.mark.parametrize("run", [repeat, rehearse])


@ON_COPIES
async def test_ledger_of_the_program_is_not_written_to(
    store: Store, outside: Outside, run: Any, wording: Wording
) -> None:
    """A later call would be answered with what has not happened; one in the store of the session is a copy."""
    pay = tool(
        "pay", outside.act, effect="external", preview=echo, idempotency=IdempotencyConfig(scope="shop", ttl=None)
    )

    def own(session: Session) -> ToolExecutor:
        return executor(pay, session=session, effect_ledger=EffectLedger(cast("Store", session.store)))

    record(store, making(pay), "pay")
    with stores.open("memory:") as other:
        with raises(PlanRefusedError, wording):
            await run(store, making(pay, effect_ledger=EffectLedger(other)))
        assert list(other.rows()) == []
    await run(store, own)
    assert outside.did == ["a"]


@dataclass
class Stock:
    """Another database, in the commit of a call."""

    did: list[str]
    store: UnitStore | None = None

    def prepare(self) -> None:
        self.did.append("prepared")

    def write(self) -> Sequence[object]:
        return ()

    def after_commit(self) -> None:
        self.did.append("committed")

    def after_rollback(self) -> None:
        self.did.append("rolled back")

    def in_doubt(self) -> None:
        self.did.append("in doubt")


@ON_COPIES
async def test_another_database_is_rolled_back(store: Store, run: Any, wording: Wording) -> None:
    """A call that enlists it is refused."""
    did: list[str] = []

    def reserve(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        enlist(Stock(did))
        return ToolResult.ok(params)

    make = making(tool("reserve", reserve))
    record(store, make, "reserve")
    assert did == ["prepared", "committed"]
    with raises(PlanRefusedError, wording):
        await run(store, make)
    assert did[2:] == ["rolled back"]


def append(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Append to a file."""
    files = context.resources.get(Filesystem)
    before = files.read_text("a") if files.exists("a") else ""
    files.write_text("a", before + params.text)
    return ToolResult.ok(params)


@ON_COPIES
async def test_files_in_memory_are_restored(store: Store, run: Any) -> None:
    """Those that the program binds."""
    files = InMemoryFilesystem()
    make = making(tool("append", append), resources={Filesystem: files})
    record(store, make, "append")
    await run(store, make)
    assert files.read_text("a") == "a"


async def test_executor_opens_a_folder_by_a_task(store: Store, tmp_path: Path) -> None:
    """A replay of a function of a session works on a copy then, and is refused without."""
    opened = ExitStack()

    def make(session: Session) -> ToolExecutor:
        files = opened.enter_context(RunTask(session, None).filesystem(tmp_path / "root"))
        return executor(tool("append", append), session=session, resources={Filesystem: files})

    (tmp_path / "root").mkdir()
    with opened:
        record(store, make, "append")
    with opened:
        assert (await replay("s", make, store=store)).equal
    with HostFilesystem(tmp_path / "root", store=store) as files, pytest.raises(PlanRefusedError):
        await replay("s", making(tool("append", append), resources={Filesystem: files}), store=store)
    assert (tmp_path / "root" / "a").read_text() == "a"


async def test_session_without_calls_is_refused(store: Store, wording: Wording) -> None:
    """An executor has nothing to compare."""
    record(store, making(tool("note")))
    with raises(SessionError, wording):
        await replay("s", making(tool("note")), store=store)
