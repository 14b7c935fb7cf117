"""A plan is not executed after anything has changed: it is refused, or stopped before the next external effect.

`KINDS` has each kind of change. Those in `REFUSED` are seen before anything runs, the others at the first call or
result that differs: no order is paid then, or, if the payment itself is what differs, no mail is sent.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from handrail import store as stores
from handrail.errors import PlanDeviatedError, PlanRefusedError
from handrail.prompt import (
    External,
    IdempotencyConfig,
    PolicyDecision,
    SequentialDependencyPolicy,
    Tool,
    ToolContext,
    ToolExample,
    ToolResult,
)
from handrail.prompt.undo import Undo
from handrail.runtime import EffectLedger, Session, ToolCall
from handrail.undo import DryRunPlan
from handrail.undo.plan_file import PlannedCall, PlannedReply
from tests.kit import ASKS, Decides, Kept, Note, executor, tool
from tests.undo.dry_run.desks import (
    MAKERS,
    SESSION,
    Desk,
    Receipt,
    change,
    desk_in,
    with_options,
)

pytestmark = pytest.mark.anyio

Changing = Callable[[Desk, DryRunPlan], object]
KINDS: dict[str, Changing] = {}
REFUSED: set[str] = set()
PAID: dict[str, tuple[str, ...]] = {}
"""What may be paid before a deviation is seen; nothing unless it says so."""


def kind(name: str, act: Changing, *, refused: bool = False, paid: tuple[str, ...] = ()) -> None:
    """Adds a kind of change."""
    assert name not in KINDS
    KINDS[name] = act
    PAID[name] = paid
    if refused:
        REFUSED.add(name)


# -------------------------------------------------------------------------------------------- the session and its store


def in_session(act: Callable[[Session], object]) -> Changing:
    """A change of the session by another process."""
    return lambda desk, _: desk.session(act)


def call_in(session: Session) -> None:
    """Makes a call of another run."""
    with executor(tool("echo"), session=session) as loop:
        loop.execute(ToolCall("x", "echo", '{"text": "x"}'), reply="rx")


def without_session(desk: Desk, _: DryRunPlan) -> None:
    """Deletes the session."""
    with stores.open(desk.url, durability="normal") as store:
        lock = store.acquire(SESSION, wait=timedelta(0))
        store.delete_session(lock)
        store.release(lock)


def _fill(session: Session, entries: int) -> None:
    for place in range(entries):
        session[Kept].append(Kept(str(place)))


def made_anew(desk: Desk, plan: DryRunPlan) -> None:
    """Deletes the session, and makes one of its name with as many entries."""
    with stores.open(desk.url, durability="normal") as store:
        row = store.find(SESSION)
    without_session(desk, plan)
    assert row is not None
    desk.session(partial(_fill, entries=row.head))


def forget_effect(desk: Desk, _: DryRunPlan) -> None:
    """Removes an effect of the session from the ledger."""
    with stores.open(desk.url, durability="normal") as store:
        (row,) = store.rows()
        EffectLedger(store).invalidate(row.key, partition=row.partition)


SESSION_CHANGES: Mapping[str, Callable[[Session], object]] = {
    "an item is appended to a slice": lambda session: session[Kept].append(Kept("more")),
    "a slice has another item": lambda session: session[Kept].seed([Kept("other")]),
    "a slice is cleared": lambda session: session[Kept].clear(),
    "a slice of another type": lambda session: session[Note].append(Note("more")),
    "a message is appended": lambda session: session.conversation.append({"role": "user", "content": "And?"}),
    "a call was made": call_in,
}
for _name, _act in SESSION_CHANGES.items():
    kind(f"session: {_name}", in_session(_act), refused=True)
kind("session: it is deleted", without_session, refused=True)
kind("session: it is made anew", made_anew, refused=True)
kind("session: an effect of it is forgotten", forget_effect, refused=True)

# ----------------------------------------------------------------------------------------------------------- the files


def in_files(act: Callable[[Path], object]) -> Changing:
    """A change in the folder on which the desk works."""
    return lambda desk, _: act(desk.root)


def several(*acts: Callable[[Path], object]) -> Callable[[Path], object]:
    """One change after the other."""

    def act(root: Path) -> None:
        for one in acts:
            one(root)

    return act


FILE_CHANGES: Mapping[str, Callable[[Path], object]] = {
    "a file has other content": lambda root: (root / "notes.txt").write_text("milk"),
    "a file has other content of the same size": lambda root: (root / "notes.txt").write_text("tee"),
    "a file has a line more": lambda root: (root / "notes.txt").write_text("tea\n"),
    "a file is empty": lambda root: (root / "notes.txt").write_text(""),
    "a file is added": lambda root: (root / "new.txt").write_text("n"),
    "an empty file is added": lambda root: (root / "new.txt").touch(),
    "a file is removed": lambda root: (root / ".hidden").unlink(),
    "a file is moved": lambda root: (root / ".hidden").rename(root / "shown"),
    "a file has another case": lambda root: (root / ".hidden").rename(root / ".Hidden"),
    "a file may be executed": lambda root: (root / "notes.txt").chmod(0o755),
    "a file may not be written": lambda root: (root / "notes.txt").chmod(0o444),
    "a folder may not be listed by others": lambda root: (root / "deep").chmod(0o700),
    "a byte of a deep file": lambda root: (root / "deep/er/data.bin").write_bytes(bytes(256)),
    "an ignored file": lambda root: (root / "run.log").write_text("new"),
    "what is ignored": lambda root: (root / ".gitignore").write_text(""),
    "a hidden file": lambda root: (root / ".hidden").write_text("H"),
    "an empty folder is added": lambda root: (root / "other").mkdir(),
    "an empty folder is removed": lambda root: (root / "empty").rmdir(),
    "a folder is moved": lambda root: (root / "deep/er").rename(root / "er"),
    "a file becomes a folder": several(
        lambda root: (root / ".hidden").unlink(), lambda root: (root / ".hidden").mkdir()
    ),
    "a folder becomes a file": several(
        lambda root: (root / "empty").rmdir(),
        lambda root: (root / "empty").touch(),
    ),
    "a link leads elsewhere": several(
        lambda root: (root / "link").unlink(), lambda root: (root / "link").symlink_to("run.log")
    ),
    "a link becomes a file": several(
        lambda root: (root / "link").unlink(), lambda root: (root / "link").write_text("tea")
    ),
    "a file becomes a link": several(
        lambda root: (root / "run.log").unlink(), lambda root: (root / "run.log").symlink_to("notes.txt")
    ),
    "a link is added": lambda root: (root / "other").symlink_to("nowhere"),
    "two files are exchanged": several(
        lambda root: (root / ".hidden").rename(root / "x"),
        lambda root: (root / "run.log").rename(root / ".hidden"),
        lambda root: (root / "x").rename(root / "run.log"),
    ),
    "a repository is added": lambda root: (root / ".git").mkdir(),
    "all is removed": several(lambda root: root.rename(root.parent / "elsewhere"), lambda root: root.mkdir()),
}
for _name, _files in FILE_CHANGES.items():
    kind(f"files: {_name}", in_files(_files), refused=True)

# ------------------------------------------------------------------------------------------------------------ the rows


def in_rows(statement: str) -> Changing:
    """A change in the database of the store."""
    return lambda desk, _: desk.sql(statement)


ROW_CHANGES = {
    "a number": "UPDATE stock SET number = 2 WHERE name = 'tea'",
    "a text": "UPDATE stock SET shelf = 'C' WHERE name = 'tea'",
    "a value is gone": "UPDATE stock SET shelf = NULL WHERE name = 'tea'",
    "a value of another type": "UPDATE stock SET number = 'three' WHERE name = 'tea'",
    "a row is gone": "DELETE FROM stock WHERE name = 'tea'",
    "a row more": "INSERT INTO stock VALUES ('tea', 1, 'D')",
    "the table is gone": "DROP TABLE stock",
    "the table to write to is gone": "DROP TABLE seen",
}
for _name, _statement in ROW_CHANGES.items():
    kind(f"rows: {_name}", in_rows(_statement))

# ----------------------------------------------------------------------------------------------------------- the tools


def setting(**setup: Any) -> Changing:
    """The program says something else."""
    return lambda desk, _: change(desk, **setup)


@dataclass(frozen=True, slots=True)
class Noted:
    """As `Note`, with more words for the model."""

    text: Annotated[str, Field(description="the order")]


@dataclass(frozen=True, slots=True)
class NoteOfMost:
    """As `Note`, of a limited length."""

    text: Annotated[str, Field(max_length=100)]


@dataclass(frozen=True, slots=True)
class NoteAndMore:
    """As `Note`, with a field more."""

    text: str
    urgent: bool = False


def other_preview(params: Note) -> ToolResult[Receipt]:
    """Another preview, which returns the same."""
    return ToolResult.ok(Receipt(params.text, "is not known yet"))


def undo_payment(params: Note, result: ToolResult[Receipt], before: Any) -> None:
    """Undoes a payment."""


def undo_otherwise(params: Note, result: ToolResult[Receipt], before: Any) -> None:
    """Undoes a payment, too."""


def capture_balance(params: Note) -> int:
    """Reads what undo needs."""
    return 1


def reconcile_payment(params: Note, key: str) -> ToolResult[Receipt] | None:
    """Says that nothing has happened."""
    return None


def apply_payment(params: Note, result: ToolResult[Receipt], *, context: ToolContext) -> None:
    """Applies nothing."""


def pay_otherwise(desk: Desk) -> Tool[Note, Receipt]:
    """The tool with another handler, which pays the same."""

    def send_money(params: Note, *, context: ToolContext) -> ToolResult[Receipt]:
        desk.paid.append(params.text)
        return ToolResult.ok(Receipt(params.text, f"re-{len(desk.paid)}"))

    return Tool[Note, Receipt](
        name="pay", handler=send_money, effect="external", preview=other_preview, description="Pays."
    )


def with_params(params: type[Any]) -> Callable[[Desk], Tool[Any, Any]]:
    """The tool with other parameters."""

    def make(desk: Desk) -> Tool[Any, Any]:
        def transfer(params: Any, *, context: ToolContext) -> ToolResult[Receipt]:
            desk.paid.append(params.text)
            return ToolResult.ok(Receipt(params.text, "re-1"))

        generic: Any = Tool
        declared: dict[str, Any] = {"effect": "external", "description": "Pays."}
        made: Tool[Any, Any] = generic[params, Receipt](name="pay", handler=transfer, **declared)
        return made

    return make


def with_tool(name: str, make: Callable[[Desk], Tool[Any, Any]]) -> Changing:
    """The program has another tool of a name."""
    others = {other: maker for other, maker in MAKERS.items() if other != name}

    def tools(desk: Desk) -> list[Tool[Any, Any]]:
        return [make(desk) if other == name else others[other](desk) for other in MAKERS]

    return lambda desk, _: change(desk, tools=tools)


OPTIONS_OF_PAY: Mapping[str, Mapping[str, Any]] = {
    "its description": {"description": "Pays an order."},
    "its timeout": {"timeout": timedelta(seconds=9)},
    "its preview": {"preview": other_preview},
    "its undo": {"undo": undo_payment},
    "the settlement of its undo": {"undo": Undo(undo_payment, effect=External(on_orphan="retry"))},
    "what it captures": {"undo": undo_otherwise, "capture": capture_balance},
    "its reconciler": {"effect": External(reconcile=reconcile_payment)},
    "what it applies": {"effect": External(apply=apply_payment)},
    "its orphans": {"effect": External(on_orphan="retry")},
    "its repeats": {"effect": External(repeat_unknown="allow")},
    "its late results": {"effect": External(accept_late_result=True)},
    "what proves that it was not applied": {"effect": External(not_applied_on=(ValueError,))},
    "its lease": {"effect": External(lease=timedelta(hours=1))},
    "its idempotency": {"idempotency": IdempotencyConfig()},
    "the life of its key": {"idempotency": IdempotencyConfig(ttl=timedelta(days=1))},
    "the scope of its key": {"idempotency": IdempotencyConfig(scope="global")},
    "that third parties write its results": {"untrusted": True},
    "that it sanitizes": {"sanitizes": True},
    "that it runs beside others": {"concurrent": True},
    "the length of its messages": {"max_result_chars": 5000},
    "its examples": {"examples": [ToolExample(description="One.", input=Note("A"), output=Receipt("A", "1"))]},
    "its effect": {"effect": "state", "preview": None},
}
for _name, _options in OPTIONS_OF_PAY.items():
    kind(f"the tool that pays: {_name}", setting(tools=with_options(pay=_options)))
kind("the tool that pays: its handler", with_tool("pay", pay_otherwise))
kind("the tool that pays: words of a parameter", with_tool("pay", with_params(Noted)))
kind("the tool that pays: a limit of a parameter", with_tool("pay", with_params(NoteOfMost)))
kind("the tool that pays: a parameter more", with_tool("pay", with_params(NoteAndMore)))
kind(
    "the tool that mails: its timeout",
    setting(tools=with_options(mail={"timeout": timedelta(1)})),
    paid=("A-17",),
)
kind(
    "the tool that notes: its description", lambda desk, _: change(desk, tools=with_options(note={"description": "N."}))
)
kind("the tool that looks: its effect", setting(tools=with_options(look={"effect": "state"})))


def reordered(desk: Desk) -> list[Tool[Any, Any]]:
    """The tools in another order."""
    return list(reversed(with_options()(desk)))


def one_more(desk: Desk) -> list[Tool[Any, Any]]:
    """A tool more, which no call needs."""
    return [*with_options()(desk), tool("other")]


def one_less(desk: Desk) -> list[Tool[Any, Any]]:
    """No tool to look."""
    return with_options()(desk)[1:]


def renamed(desk: Desk) -> list[Tool[Any, Any]]:
    """The tool that mails has another name."""
    *others, last = with_options()(desk)
    return [*others, replace(last, name="letter")]


for _name, _tools in {"order": reordered, "one more": one_more, "one less": one_less, "another name": renamed}.items():
    kind(f"tools: {_name}", setting(tools=_tools))

# -------------------------------------------------------------------------------------------------- what judges calls

ALLOWS = Decides(lambda _tool, _params: PolicyDecision.allow(), "allows")
DENIES = Decides(
    lambda tool, _params: PolicyDecision.deny("no") if tool.name == "pay" else PolicyDecision.allow(), "no"
)
AFTER_NOTE = SequentialDependencyPolicy(dependencies={"pay": frozenset({"note"})})
for _name, _policies in {
    "one more": (ALLOWS,),
    "one that asks": (ASKS,),
    "one that denies": (DENIES,),
    "one that wants an order": (AFTER_NOTE,),
    "two more": (ALLOWS, AFTER_NOTE),
}.items():
    kind(f"policies: {_name}", setting(policies=_policies))

# ----------------------------------------------------------------------------------------------------------- the model

MODEL_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "another one": {"model": "large"},
    "its temperature": {"settings": {"temperature": 0.2, "top_p": 1.0, "seed": 7}},
    "its top_p": {"settings": {"temperature": 0.1, "top_p": 0.9, "seed": 7}},
    "its seed": {"settings": {"temperature": 0.1, "top_p": 1.0, "seed": 8}},
    "a setting more": {"settings": {"temperature": 0.1, "top_p": 1.0, "seed": 7, "max_tokens": 100}},
    "a setting less": {"settings": {"temperature": 0.1, "top_p": 1.0}},
    "no settings": {"settings": {}},
    "its instructions": {"instructions": "Pay all."},
}
for _name, _setup in MODEL_CHANGES.items():
    kind(f"model: {_name}", setting(**_setup))
kind("model: it is asked less often", lambda desk, _: change(desk, replies=desk.setup.replies[:1]), paid=("A-17",))

# ------------------------------------------------------------------------------------------------------------ the plan


def tampered(name: str) -> Changing:
    """The plan has another value in a field, and the old token."""

    def act(_: Desk, plan: DryRunPlan) -> DryRunPlan:
        values: dict[str, Any] = {
            "versions": {**plan.versions, "x": ""},
            "origin": {"x": 1},
            "calls": plan.calls[1:],
            "replies": plan.replies[1:],
        }
        return replace(plan, **{name: values.get(name, f"{getattr(plan, name)}x")})

    return act


def tampered_part(parts_name: str, name: str) -> Changing:
    """The third call, or reply, of the plan has another value in a field."""

    def act(_: Desk, plan: DryRunPlan) -> DryRunPlan:
        parts: list[Any] = list(getattr(plan, parts_name))
        value: Any = getattr(parts[2], name)
        if isinstance(value, bool):
            value = not value
        elif isinstance(value, tuple):
            value = ("x",)
        else:
            value = {"x": "y"} if isinstance(value, dict) else f"{value}x"
        parts[2] = replace(parts[2], **{name: value})
        changes: dict[str, Any] = {parts_name: tuple(parts)}
        return replace(plan, **changes)

    return act


def made_with(name: str, version: str) -> Changing:
    """The plan was made with another version of something."""
    return lambda _, plan: replace(plan, versions={**plan.versions, name: version}).with_token()


for _field in fields(DryRunPlan):
    kind(f"plan: its {_field.name}", tampered(_field.name), refused=True)
for _list, _part in (("calls", PlannedCall), ("replies", PlannedReply)):
    for _field in fields(_part):
        kind(f"plan: {_field.name} of {_list}", tampered_part(_list, _field.name), refused=True)
kind("plan: the order of its calls", lambda _, plan: replace(plan, calls=plan.calls[::-1]), refused=True)
kind("plan: a call twice", lambda _, plan: replace(plan, calls=(*plan.calls, plan.calls[-1])), refused=True)
for _name, _version in {"Handrail": "0.0.1", "agent": "clerk", "code": "other", "store": "sqlite:///other.db"}.items():
    kind(f"plan: made with another {_name}", made_with(_name, _version), refused=True)
kind("plan: made early, and not complete", lambda _, plan: replace(plan, ends="too early").with_token(), refused=True)
kind("plan: of another session", lambda _, plan: replace(plan, session="other").with_token(), refused=True)
kind("plan: of another input", lambda _, plan: replace(plan, input="Other.").with_token())
kind(
    "plan: of another folder",
    lambda _, plan: replace(
        plan, versions={name: one for name, one in plan.versions.items() if not name.startswith("folder")}
    ).with_token(),
)


def another_root(desk: Desk, _: DryRunPlan) -> None:
    """The desk works on another folder with the same files."""
    other = desk.folder / "copy"
    shutil.copytree(desk.root, other, symlinks=True)
    desk.root = other


kind("program: it works on another folder", another_root)

# ------------------------------------------------------------------------------------- what the world outside answers


def outside(**world: str) -> Changing:
    """The same handlers find something else outside."""
    return lambda desk, _: desk.world.update(world)


kind("outside: what a tool reads", outside(look="!"))
kind("outside: what a tool that changes state returns", outside(note="other"))
kind("outside: a payment is refused", outside(refuses="closed"))
kind("outside: a payment has another order, which a later call uses", outside(pay="B-18"), paid=("A-17",))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk."""
    return desk_in(tmp_path / "desk")


def test_there_are_more_than_a_hundred_kinds() -> None:
    """Each has a name of its own."""
    assert len(KINDS) >= 100


@pytest.mark.parametrize("name", KINDS)
async def test_plan_is_not_executed_after_a_change(name: str, desk: Desk) -> None:
    """It is refused before anything runs, or stopped before the next external effect."""
    plan = await desk.rehearse()
    desk.ran.clear()
    changed = KINDS[name](desk, plan)
    plan = changed if isinstance(changed, DryRunPlan) else plan
    with pytest.raises((PlanRefusedError, PlanDeviatedError)) as raised:
        await desk.execute(plan)
    assert (tuple(desk.paid), desk.mailed) == (PAID[name], [])
    assert isinstance(raised.value, PlanRefusedError) == (name in REFUSED)
    assert not desk.ran or name not in REFUSED
