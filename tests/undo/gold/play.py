"""Plays the first gold actions of an entry, undoes them by one plan or two, and compares state, files and world."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from handrail import undo
from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import HostFilesystem
from handrail.runtime import Session, ToolCall
from handrail.store import Store
from handrail.undo.records import survives_undo
from tests.undo.gold.gorilla import read_tree, write_changes
from tests.undo.gold.worlds import Change, Entry, World, apply_changes, changes

UNDONE = ("restored", "compensated")


@dataclass(frozen=True, slots=True)
class Played:
    """The outcome of a prefix.

    Attributes:
        outcomes: how many steps the plan has of each outcome.
        differences: where state, files and world are not as at the start, but for what stays.
        left: what a second plan could undo.
    """

    outcomes: Mapping[str, int]
    differences: list[Change]
    left: list[Any]


async def play(entry: Entry, length: int, store: Store, folder: Path | None = None, *, undoes: bool = True) -> Played:
    """Plays the first `length` actions of an entry, and undoes them; its files are in a folder, or in memory."""
    world = entry.start()
    if folder is None or world.files is None:
        return await _play(entry, length, store, world, undoes=undoes)
    with HostFilesystem(folder, journal=folder.with_suffix(".journal"), store=store, durability="normal") as files:
        write_changes(files, {}, read_tree(world.files))
        return await _play(entry, length, store, replace(world, files=files), undoes=undoes)


async def _play(entry: Entry, length: int, store: Store, world: World, *, undoes: bool) -> Played:
    with Session.open(store, f"{entry} {length} {world.files!r:.40}") as session:
        executor = ToolExecutor(prompt=entry.prompt(world, session), session=session, approver=entry.approver)
        start = _dump(world, session)
        made: dict[str, list[Change]] = {}
        for number, asked in enumerate(entry.calls[:length]):
            before, call = (
                _dump(world, session),
                ToolCall(f"call-{number}", asked.function, json.dumps(asked.arguments)),
            )
            await executor.execute_async(call, reply="gold")
            made[call.id] = [*changes(before, _dump(world, session))]
        await executor.settle_open_async()
        outcomes: dict[str, str] = {}
        for to in _starts(length) if undoes else ():
            plan = undo.plan(session, to, executors=executor)
            outcomes |= {step.ref.call_id: step.outcome for step in plan.steps}
            await undo.apply(plan, partial=True)
        for number, asked in enumerate(entry.calls[:length]):
            apply_changes(
                start, _staying(entry, asked.function, outcomes.get(f"call-{number}"), made[f"call-{number}"])
            )
        left = [step for step in undo.plan(session, executors=executor).steps if step.outcome in UNDONE]
        return Played(Counter(outcomes.values()), [*changes(start, _dump(world, session))], left)


def _starts(length: int) -> list[tuple[str, str] | None]:
    """The oldest calls of the plans that are applied: the second half is undone first where the length is odd."""
    return [("gold", f"call-{length // 2}"), None] if length % 2 else [None]


def _staying(entry: Entry, function: str, outcome: str | None, made: list[Change]) -> Iterator[Change]:
    """The changes of a call that stay: all of them, unless it is undone; what others know of it stays all the same."""
    remains = entry.remains.get(function)
    for path, value in made:
        if outcome not in {None, *UNDONE} or path[:2] == ("world", remains):
            yield path, value


def _dump(world: World, session: Session) -> dict[str, Any]:
    """State, files and world, as values that can be compared."""
    kinds = [kind for kind in session.snapshot().slices if not survives_undo(kind)]
    state = {kind.__name__: items for kind in kinds if (items := [*session[kind].all()])}
    files = {} if world.files is None else read_tree(world.files)
    return {"state": state, "files": files, "world": deepcopy(world.dump())}
