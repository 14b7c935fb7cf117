"""What a dry run copies of each kind of store and of folders, what it refuses to change, and what a kill leaves."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from handrail import store as stores
from handrail.adapters.run_task import RunTask
from handrail.errors import PlanDeviatedError, PlanRefusedError, ToolValidationError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.filesystem.copies import copy_folder, digest_folder
from handrail.prompt import IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.runtime import ToolInvoked
from handrail.store import Store
from handrail.undo import DryRunPlan, apply_plan, dry_run
from tests.kit import ASKS, Kept, Note, call, executor, tool
from tests.undo.dry_run.desks import desk_in, pay
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def calling(
    *tools: Tool[Any, Any], calls: Sequence[tuple[str, str]], resources: Any = None, **options: Any
) -> Callable[[RunTask], Any]:
    """A loop that makes calls of tools, one a reply, as its model says."""

    async def desk(task: RunTask) -> object:
        loop = executor(*tools, session=task.session, resources=resources, **options)
        contents: list[str] = []
        for number, (name, text) in enumerate(calls):

            async def ask(name: str = name, text: str = text) -> Any:
                return [name, text]

            reply = await task.reply({"messages": [], "tools": []}, ask)
            message = await loop.execute_async(call(*reply, id=f"c{number}"), reply=f"r{number}")
            contents.append(message.content)
        return contents

    return desk


def counting(sql: str) -> Tool[Note, Note]:
    """Writes a row, and returns how many there are."""

    def count(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.connection.execute(f"INSERT INTO counted VALUES ({sql})", (params.text,))  # noqa: S608 - a constant
        if params.text == "bad":
            raise ToolValidationError("bad")
        ((number,),) = context.connection.execute("SELECT count(*) FROM counted").fetchall()
        context.session[Kept].append(Kept(params.text))
        return ToolResult.ok(Note(str(number)))

    return tool("count", count)


def looking() -> Tool[Note, Note]:
    """Returns how many rows there are."""

    def look(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        ((number,),) = context.connection.execute("SELECT count(*) FROM counted").fetchall()
        return ToolResult.ok(Note(str(number)))

    return tool("look", look, effect="read")


COUNTS = [("count", "a"), ("count", "bad"), ("look", ""), ("count", "b"), ("look", "")]


def make_table(url: str) -> Callable[[], int]:
    """Makes the table; returns what counts its rows."""

    def connect() -> Any:
        is_file = url.startswith("sqlite")
        return sqlite3.connect(url.removeprefix("sqlite:///")) if is_file else psycopg.connect(url)

    connection = connect()
    connection.execute("CREATE TABLE counted (text VARCHAR(100))")
    connection.commit()
    connection.close()

    def rows() -> int:
        connection = connect()
        try:
            return int(connection.execute("SELECT count(*) FROM counted").fetchall()[0][0])
        finally:
            connection.close()

    return rows


async def test_rows_are_rehearsed_and_rolled_back(url: str) -> None:
    """A call sees what earlier ones have written, a failed one is rolled back, and nothing of it is in the database."""
    sql = "?" if url.startswith("sqlite") else "%s"
    with stores.open(url) as store:
        rows = make_table(url)
        desk = calling(counting(sql), looking(), calls=COUNTS)
        with store.session("s") as session:
            session[Kept].append(Kept("before"))
        plan = await dry_run(desk, "Count.", store=store, session="s")
        assert plan.output == str(["1", "bad", "1", "2", "2"])
        assert rows() == 0
        with store.session("s") as session:
            assert [one.text for one in session[Kept]] == ["before"]
        answer = await apply_plan(await dry_run(desk, "Count.", store=store, session="s"), desk, store=store)
        assert (answer, rows()) == (["1", "bad", "1", "2", "2"], 2)


async def test_other_rows_stop_a_call_before_it_acts(url: str) -> None:
    """The call that would read them is rolled back, and the run ends."""
    sql = "?" if url.startswith("sqlite") else "%s"
    with stores.open(url) as store:
        rows = make_table(url)
        desk = calling(counting(sql), looking(), calls=COUNTS)
        plan = await dry_run(desk, "Count.", store=store, session="s")
        other = calling(counting(sql), calls=[("count", "x")])
        await other(RunTask(store.session("other"), None))
        with pytest.raises(PlanDeviatedError):
            await apply_plan(plan, desk, store=store)
        assert rows() == 1


async def test_store_in_memory_is_copied() -> None:
    """Nothing is in it before the plan is executed."""
    desk = calling(tool("echo"), calls=[("echo", "a")])
    with stores.open("memory:") as store:
        with store.session("s") as session:
            session[Kept].append(Kept("before"))
        plan = await dry_run(desk, "Go.", store=store, session="s")
        with store.session("s") as session:
            assert (session[ToolInvoked].all(), plan.output) == ((), "['a']")
        assert await apply_plan(plan, desk, store=store) == ["a"]
        with pytest.raises(PlanRefusedError):
            await apply_plan(plan, desk, store=store)


@pytest.fixture(params=["memory", "url"])
def any_store(request: pytest.FixtureRequest, url: str) -> Any:
    """A store of each kind."""
    with stores.open("memory:" if request.param == "memory" else url) as store:
        yield store


async def test_effect_that_has_happened_is_not_planned_anew(any_store: Store, tmp_path: Path) -> None:
    """The ledger of the copy has it; if it happens only after the plan was made, the run stops after that call."""
    desk = desk_in(tmp_path / "desk")
    paying = pay(desk, idempotency=IdempotencyConfig(scope="global"))
    first = calling(paying, calls=[("pay", "A")])
    await first(RunTask(any_store.session("first"), None))
    again = calling(paying, calls=[("pay", "A"), ("pay", "B")])
    plan = await dry_run(again, store=any_store, session="again")
    assert [(one.replayed, one.value["number"]) for one in plan.calls] == [(True, "re-1"), (False, "is not known yet")]
    await calling(paying, calls=[("pay", "B")])(RunTask(any_store.session("meanwhile"), None))
    third = calling(paying, calls=[("pay", "B"), ("pay", "C")])
    with pytest.raises(PlanDeviatedError):
        await apply_plan(plan, again, store=any_store)
    assert desk.paid == ["A", "B"]
    assert (await dry_run(third, store=any_store)).calls[0].replayed


async def test_questions_of_policies_are_in_the_plan() -> None:
    """An approver of the run is not asked, in neither of both; the plan as a whole has to be approved."""
    desk = calling(tool("echo"), calls=[("echo", "a")], policies=[ASKS])
    with stores.open("memory:") as store:
        plan = await dry_run(desk, store=store, session="s")
        assert [one.asks for one in plan.calls] == [("sure?",)]
        with pytest.raises(PlanRefusedError):
            await apply_plan(plan, desk, store=store)

        async def approve(asked: DryRunPlan) -> bool:
            return asked == plan

        assert await apply_plan(plan, desk, store=store, approver=approve) == ["a"]


# ------------------------------------------------------------------------------------------------- files and resources


def writing() -> Tool[Note, Note]:
    """Writes a file of the bound filesystem."""

    def write(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        files = context.resources.get(Filesystem)
        files.write_text("a.txt", f"{files.read_text('a.txt')}{params.text}")
        return ToolResult.ok(Note(files.read_text("a.txt")))

    return tool("write", write)


async def test_filesystem_in_memory_is_restored() -> None:
    """It is as before; and a plan is not executed if its files are others."""
    files = InMemoryFilesystem({"a.txt": "0"})
    desk = calling(writing(), calls=[("write", "1"), ("write", "2")], resources={Filesystem: files})
    with stores.open("memory:") as store:
        plan = await dry_run(desk, store=store, session="s")
        assert (plan.output, files.read_text("a.txt")) == ("['01', '012']", "0")
        files.write_text("b.txt", "new")
        with pytest.raises(PlanDeviatedError):
            await apply_plan(plan, desk, store=store)
        files.remove("b.txt")
        assert files.read_text("a.txt") == "0"
        plan = await dry_run(desk, store=store, session="t")
        assert await apply_plan(plan, desk, store=store) == ["01", "012"]


async def test_folder_that_is_not_a_copy_is_refused(tmp_path: Path) -> None:
    """A function has to open it by its task, so that a dry run never writes to the real one."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("0", encoding="utf-8")
    with HostFilesystem(root, journal=tmp_path / "journal") as files:
        desk = calling(writing(), calls=[("write", "1")], resources={Filesystem: files})
        with stores.open("memory:") as store, pytest.raises(PlanRefusedError):
            await dry_run(desk, store=store)
    assert (root / "a.txt").read_text(encoding="utf-8") == "0"


async def test_folder_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """Nothing is copied then."""
    desk = desk_in(tmp_path / "desk")
    with (desk.root / "large").open("wb") as file:
        file.truncate(1_000_000_001)
    with pytest.raises(PlanRefusedError):
        await desk.rehearse()


def test_copy_of_a_folder_is_equal(tmp_path: Path) -> None:
    """With modes, links, empty folders and ignored files; a link into the folder leads into the copy."""
    desk = desk_in(tmp_path / "desk")
    (desk.root / "notes.txt").chmod(0o640)
    os.mkfifo(desk.root / "pipe")
    copy_folder(desk.root, tmp_path / "copy")
    assert digest_folder(tmp_path / "copy") == digest_folder(desk.root)
    (desk.root / "inner").symlink_to(desk.root / "notes.txt")
    copy_folder(desk.root, tmp_path / "other")
    assert (tmp_path / "other" / "inner").readlink() == tmp_path / "other" / "notes.txt"


# -------------------------------------------------------------------------------------------- how a dry run may end


async def test_nothing_is_left_of_a_dry_run_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception of the program is raised, and all is as it was."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    desk = desk_in(tmp_path / "desk")
    before = digest_folder(desk.root)

    async def failing(task: RunTask) -> object:
        await desk.desk(task)
        raise KeyError

    with stores.open(desk.url) as store:
        with pytest.raises(KeyError):
            await dry_run(failing, "Pay.", store=store)
        assert [row.session_id for row in store.sessions()] == ["desk"]
    assert (digest_folder(desk.root), list((tmp_path / "temporary").iterdir()), desk.paid) == (before, [], [])


def rehearse_and_die(folder: str, url: str) -> None:
    """Dies by itself in the middle of a dry run."""
    tempfile.tempdir = f"{folder}/temporary"

    async def dying(task: RunTask) -> object:
        with task.filesystem(f"{folder}/work") as files:
            files.write_text("a.txt", "changed")
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    with stores.open(url) as store:
        asyncio.run(dry_run(dying, store=store, session="s"))


def test_kill_leaves_a_temporary_folder(tmp_path: Path) -> None:
    """And nothing else: neither the store nor the files of the run have changed, and both can be used."""
    for name in ("temporary", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "a.txt").write_text("old", encoding="utf-8")
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    process = multiprocessing.get_context("spawn").Process(target=rehearse_and_die, args=(str(tmp_path), url))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (left,) = (tmp_path / "temporary").iterdir()
    assert left.name.startswith("handrail-dry-run-")
    assert (tmp_path / "work" / "a.txt").read_text(encoding="utf-8") == "old"
    with stores.open(url) as store:
        assert store.find("s") is None


def apply_and_die(folder: str, url: str) -> None:
    """Dies by itself in the second call of a plan."""

    def act(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if params.text == "two" and context.session.session_id == "s" and Path(folder, "armed").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        with Path(folder, "done").open("a", encoding="utf-8") as file:
            file.write(f"{params.text};")
        return ToolResult.ok(params)

    acting = tool("act", act, effect="external", preview=ToolResult.ok)
    desk = calling(acting, calls=[("act", "one"), ("act", "two")])
    path = Path(folder, "plan.json")
    with stores.open(url) as store:
        if not path.exists():
            asyncio.run(dry_run(desk, "Act.", store=store, session="s")).save(path)
            return
        if Path(folder, "armed").exists():
            asyncio.run(apply_plan(DryRunPlan.load(path), desk, store=store))
        with pytest.raises(PlanRefusedError):
            asyncio.run(apply_plan(DryRunPlan.load(path), desk, store=store))
        # As `handrail run --session` does, without a plan.
        loop = executor(acting, session=store.session("s"))
        loop.execute(call("act", "one", id="c0"), reply="r0")


def run_apart(folder: Path, url: str) -> int | None:
    """Runs it in a process of its own, and returns the exit code."""
    process = multiprocessing.get_context("spawn").Process(target=apply_and_die, args=(str(folder), url))
    process.start()
    process.join()
    return process.exitcode


def test_kill_while_a_plan_is_applied_leaves_what_is_done(tmp_path: Path) -> None:
    """The plan is refused from then on; the run continues without it, and nothing is done twice."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    assert run_apart(tmp_path, url) == 0
    assert not (tmp_path / "done").exists()
    (tmp_path / "armed").touch()
    assert run_apart(tmp_path, url) == -signal.SIGKILL
    (tmp_path / "armed").unlink()
    assert run_apart(tmp_path, url) == 0
    assert (tmp_path / "done").read_text(encoding="utf-8") == "one;"


async def test_refusal_of_a_changed_folder_names_the_newest_entry(tmp_path: Path) -> None:
    """Not the file of the plan, which may change."""
    desk = desk_in(tmp_path / "desk")
    plan_file = desk.root / "plan.json"
    plan = await desk.rehearse(besides=[plan_file])
    (desk.root / "deep" / "log").write_text("x", encoding="utf-8")
    plan_file.write_text("x", encoding="utf-8")
    with pytest.raises(PlanRefusedError, match="deep/log"):
        await desk.execute(plan, besides=[plan_file])


# ------------------------------------------------------------------------------------------------------------ previews


def previewing(preview: Any, result: ToolResult[Any]) -> Tool[Any, Any]:
    """Books something, with a number that the preview may not have."""

    def book(params: Note, *, context: ToolContext) -> ToolResult[Any]:
        return result

    options: dict[str, Any] = {"given_types": (Note, type(result.value))}
    return Tool(name="book", description="Books.", handler=book, effect="external", preview=preview, **options)


async def _execute(preview: ToolResult[Any], result: ToolResult[Any], used: str) -> tuple[object, list[str]]:
    """What comes of a plan whose second call has a name in its arguments, and what was settled."""
    settled: list[str] = []

    def preview_booking(params: Note) -> ToolResult[Any]:
        return preview

    def preview_settling(params: Note) -> ToolResult[Note]:
        return ToolResult.ok(Note("settled"))

    def settle(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        settled.append(params.text)
        return ToolResult.ok(Note("settled"))

    second = tool("settle", settle, effect="external", preview=preview_settling)
    book = previewing(preview_booking, result)
    desk = calling(book, second, calls=[("book", "room 3"), ("settle", used)])
    with stores.open("memory:") as store:
        plan = await dry_run(desk, store=store)
        assert (plan.ends, len(plan.calls)) == ("", 2)
        try:
            return await apply_plan(plan, desk, store=store), settled
        except PlanDeviatedError as error:
            return error, settled


@pytest.mark.parametrize(
    "preview, result, used",
    [
        ("room 3 is booked as B-1001", "room 3 is booked as B-1002", "B-1001"),
        ("B-100", "B-1001", "B-100"),
        ("B-100", "B-100-2", "pay B-100, please"),
        ("https://desk/B-100", "https://desk/B-101", "B-100"),
        (17, 18, "17"),
        (17, 18, "number 17"),
        (17.0, 18.0, "17"),
        ("ABCDEF", "GHIJKL", "pay ABCDEF now"),
        (["x", {"key7": 1}], ["x", {"key8": 1}], "key7"),
    ],
)
async def test_call_that_uses_a_name_of_another_result_is_not_made(preview: Any, result: Any, used: str) -> None:
    """The name that it has from the preview is not in the result, or only inside of a longer one."""
    answer, settled = await _execute(ToolResult.ok(preview), ToolResult.ok(result), used)
    assert isinstance(answer, PlanDeviatedError)
    assert settled == []


@pytest.mark.parametrize(
    "preview, result, used",
    [
        ("room 3 is booked as B-1001.", "booked: B-1001", "B-1001"),
        ("room 3 is booked", "booked", "3"),
        ("room 3 is booked as B-1001", "room 3 is booked as B-1002", "C-7"),
        ("12.50 Euro", "13.50 Euro", "12"),
    ],
)
async def test_call_that_uses_nothing_of_what_differs_is_made(preview: Any, result: Any, used: str) -> None:
    """What is in the arguments of the first call as well is not from its result."""
    answer, settled = await _execute(ToolResult.ok(preview), ToolResult.ok(result), used)
    assert isinstance(answer, list)
    assert settled == [used]


async def test_text_of_a_result_counts_as_its_value() -> None:
    """The model reads both."""
    answer, settled = await _execute(ToolResult.ok(None, message="B-7"), ToolResult.ok(None, message="B-8"), "B-7")
    assert (type(answer), settled) == (PlanDeviatedError, [])


@pytest.mark.parametrize("is_async", [False, True])
async def test_plan_ends_where_a_preview_fails(is_async: bool, wording: Wording) -> None:
    """Such a plan is not executed; what refuses the call is a result."""

    def fail(params: Note) -> ToolResult[Note]:
        raise (ToolValidationError if params.text == "refused" else ValueError)("the price list cannot be read")

    async def fail_async(params: Note) -> ToolResult[Note]:
        return fail(params)

    book = previewing(fail_async if is_async else fail, ToolResult.ok(Note("booked")))
    with stores.open("memory:") as store:
        plan = await dry_run(calling(book, calls=[("book", "room")]), store=store)
        assert plan.ends == wording
        with pytest.raises(PlanRefusedError):
            await apply_plan(plan, calling(book, calls=[("book", "room")]), store=store)
        plan = await dry_run(calling(book, calls=[("book", "refused")]), store=store)
        assert (plan.ends, [call.success for call in plan.calls]) == ("", [False])
