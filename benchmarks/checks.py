"""What a call costs with what protects its store and its texts, beside the same call without.

Before each unit of work a store compares the files of its database with what the folder names
(`handrail.store.sqlite.store`), and texts of failures are searched for secrets (`handrail.redaction`). The cases
without have neither; all else is the same, and both are prepared in the same way before the calls of a timing. The
cases with them are those of a program, and their bounds hold what a store adds to the processor time of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from benchmarks.calls import ARGUMENTS, Found, Lookup
from benchmarks.timing import Block, Bound
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult
from handrail.redaction import Redaction, current_redaction, use_redaction
from handrail.runtime import Session, ToolCall
from handrail.store.sqlite.store import SqliteDriver

Effect = Literal["state", "external"]

MEMORY = "in memory"
SQLITE = "SQLite (normal)"
EFFECTS: tuple[Effect, ...] = ("state", "external")
STATE_IN_MEMORY = f"state, {MEMORY}, without checks"
OPENING = f"opening a session, {SQLITE}"

_CASES = (*(f"{effect}, {where}" for where in (MEMORY, SQLITE) for effect in EFFECTS), f"a failure, {MEMORY}")

BOUNDS = (
    *(Bound(case, f"{case}, without checks", 1.03) for case in _CASES),
    Bound(OPENING, f"{OPENING}, without checks", 1.05),
    *(Bound(f"{effect}, {SQLITE}", f"{effect}, {MEMORY}", 4.0, clock="processor") for effect in EFFECTS),
)

_CALLS, _OPENINGS = 300, 30

_NO_REDACTION = Redaction(forms=())


def _find(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    return ToolResult.ok(Found(params.entity_id, f"https://example.org/{params.entity_id}"))


def _fail(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    return ToolResult.error(f"there is no {params.entity_id}")


class _Checks:
    """Whether the checks are made."""

    def __init__(self) -> None:
        self._redaction = current_redaction()
        self._check = SqliteDriver.check_files

    def on(self) -> None:
        """From now on."""
        self._use(self._check, self._redaction)

    def off(self) -> None:
        """No longer."""
        self._use(_unchecked, _NO_REDACTION)

    @staticmethod
    def _use(check: Callable[..., None], redaction: Redaction) -> None:
        setattr(SqliteDriver, "check_files", check)  # noqa: B010 - mypy refuses to assign to a method
        use_redaction(redaction)


def _unchecked(_driver: SqliteDriver, *, reading: bool = False) -> None:
    """Compare nothing."""


def _calling(session: Session, name: str, before: Callable[[], None], *, success: bool = True) -> Callable[[], object]:
    tools = [
        *(Tool[Lookup, Found](name=effect, description="Finds.", handler=_find, effect=effect) for effect in EFFECTS),
        Tool[Lookup, Found](name="fail", description="Fails.", handler=_fail),
    ]
    template = PromptTemplate(ns="benchmarks", key="checks", sections=[Section(title="Tools", tools=tools)])
    executor = ToolExecutor(prompt=Prompt(template), session=session)
    numbers = count()

    def calls() -> None:
        before()
        for number in islice(numbers, _CALLS):
            message = executor.execute(ToolCall(f"call-{number}", name, ARGUMENTS))
            assert message.success is success, message.content

    return Block(_CALLS, calls)


def _opening(url: str, before: Callable[[], None]) -> Callable[[], object]:
    def openings() -> None:
        before()
        for _ in range(_OPENINGS):
            with store.open(url, durability="normal") as kept, Session.open(kept, "opened"):
                pass

    return Block(_OPENINGS, openings)


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the databases are there for the time of the block."""
    checks = _Checks()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        opened.callback(checks.on)
        found: dict[str, Callable[[], object]] = {}
        for before, ending in ((checks.on, ""), (checks.off, ", without checks")):
            database = f"sqlite:///{folder}/{'on' if not ending else 'off'}.db"
            kept = opened.enter_context(store.open(database, durability="normal"))
            for effect in EFFECTS:
                found[f"{effect}, {MEMORY}{ending}"] = _calling(Session(), effect, before)
                session = opened.enter_context(Session.open(kept, effect))
                found[f"{effect}, {SQLITE}{ending}"] = _calling(session, effect, before)
            found[f"a failure, {MEMORY}{ending}"] = _calling(Session(), "fail", before, success=False)
            found[f"{OPENING}{ending}"] = _opening(f"sqlite:///{folder}/opened{len(ending)}.db", before)
        yield found
