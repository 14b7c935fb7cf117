"""`handrail sessions delete|prune`: deletes sessions, with what belongs to them alone.

A session is deleted with its child sessions, the children first: a process that dies in between leaves a parent that
the same command deletes. What was shown is looked at again once the session is held, because another process may have
used it since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import NamedTuple

from cyclopts import CycloptsError, Parameter

from handrail.cli.options import PAGE, DryRun, StoreOptions, Yes, check_can_ask
from handrail.cli.screen import Field, Screen
from handrail.cli.sessions.listing import SessionFilter, find_session, know_conversations, last_used
from handrail.errors import SessionLockedError, SessionNotFoundError, StoreCorruptError, UnknownTypeError
from handrail.serde.formatting import count_noun, format_size
from handrail.session.open_calls import open_calls_in_store
from handrail.session.persistence.loading import held_session
from handrail.session.persistence.protocol import SessionRow, SessionSize
from handrail.store import Store

_HELD = "a process has it open"
_CHANGED = "it was used meanwhile"


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRemoval:
    """How to delete sessions.

    Attributes:
        with_open_calls: Delete also sessions with open calls: calls that wait for an approval or have no record yet,
            and effects that are running, unknown or not applied. What is known of them is lost, and they may happen
            twice.
        yes: whether to delete without asking.
        dry_run: whether to delete nothing.
    """

    with_open_calls: bool = False
    yes: Yes = False
    dry_run: DryRun = False


class _Tree(NamedTuple):
    """A session with its child sessions, the innermost first, and what they take."""

    row: SessionRow
    children: Sequence[SessionRow]
    size: SessionSize
    used_at: datetime


class _Plan(NamedTuple):
    """What is deleted, what is kept and why, and the sessions whose deletion was cut off."""

    going: Sequence[_Tree]
    kept: Mapping[str, str]
    unfinished: Sequence[str]

    @property
    def size(self) -> SessionSize:
        return _total(tree.size for tree in self.going)

    @property
    def words(self) -> str:
        sessions = count_noun(sum(1 + len(tree.children) for tree in self.going), "session")
        return f"{sessions} with {count_noun(self.size.effects, 'effect')} ({format_size(self.size.bytes)})"


_GOING: tuple[Field[_Tree], ...] = (
    Field("session", lambda tree: tree.row.session_id),
    Field("last used", lambda tree: tree.used_at),
    Field("children", lambda tree: len(tree.children)),
    Field("calls", lambda tree: tree.size.calls),
    Field("effects", lambda tree: tree.size.effects),
    Field("size", lambda tree: format_size(tree.size.bytes)),
)
_KEPT: tuple[Field[tuple[str, str]], ...] = (Field("kept", itemgetter(0)), Field("because", itemgetter(1)))


def delete_sessions(
    *sessions: str,
    removal: SessionRemoval = SessionRemoval(),
    options: StoreOptions = StoreOptions(),
) -> int:
    """Delete sessions: entries, records of calls, child sessions, and the effects that belong to them alone.

    Effects whose keys sessions share stay until they expire. A session that a process has open is kept, and so is one
    with open calls unless --with-open-calls is given.

    Example: `handrail sessions delete night-desk what-if --dry-run`

    Args:
        *sessions: Their ids, as `sessions list` shows them.
        removal: How to remove them.
        options: The store and the output format.
    """
    if not sessions:
        raise CycloptsError(msg="which sessions? Give their ids, or see sessions prune")
    screen = Screen()
    check_can_ask(screen, "deletes sessions", yes=removal.yes or removal.dry_run)
    with options.open(writing=not removal.dry_run) as store:
        unfinished = set(store.unfinished_deletions())
        rows = [find_session(store, name) for name in dict.fromkeys(sessions) if name not in unfinished]
        return _remove(screen, store, _planned(store, rows, removal), removal, options, named=True)


def prune_sessions(
    *,
    wanted: SessionFilter = SessionFilter(),
    removal: SessionRemoval = SessionRemoval(),
    options: StoreOptions = StoreOptions(),
) -> int:
    """Delete the sessions that were not used for some time, as `sessions delete` does. Needs --older-than.

    Child sessions go with their parent, and are not looked at on their own. Sessions that a process has open, or with
    open calls, are kept.

    Example: `handrail sessions prune --older-than 30d --state ended --dry-run`
    """
    if wanted.older_than is None:
        raise CycloptsError(msg="how old must they be? Give --older-than, such as 30d")
    screen = Screen()
    check_can_ask(screen, "deletes sessions", yes=removal.yes or removal.dry_run)
    with options.open(writing=not removal.dry_run) as store:
        rows = [row for row in wanted.select(store) if not _is_child(row) or store.find(row.parent or "") is None]
        return _remove(screen, store, _planned(store, rows, removal), removal, options, named=False)


# ------------------------------------------------------------------------------------------------------------- the plan


def _planned(store: Store, rows: Sequence[SessionRow], removal: SessionRemoval) -> _Plan:
    know_conversations()
    held = store.held_sessions()
    children = _children(store)
    going: list[_Tree] = []
    kept: dict[str, str] = {}
    below = {row.session_id for each in rows for row in _descendants(each, children)}
    for row in rows:
        if row.session_id in below:  # goes with its parent, which was named, too
            continue
        family = list(_descendants(row, children))
        why = _why_kept(store, (*family, row), removal, held)
        if why:
            kept[row.session_id] = why
            continue
        size = _total(store.session_size(each.session_id) for each in (*family, row))
        going.append(_Tree(row, family, size, last_used(store, row)))
    return _Plan(going, kept, store.unfinished_deletions())


def _is_child(row: SessionRow) -> bool:
    """Whether a session was made by a call of its parent. A fork has a parent, too, and an id of its own."""
    return row.parent is not None and row.session_id.startswith(f"{row.parent}/")


def _children(store: Store) -> Mapping[str, list[SessionRow]]:
    found: dict[str, list[SessionRow]] = defaultdict(list)
    for row in store.sessions():
        if row.parent is not None and _is_child(row):
            found[row.parent].append(row)
    return found


def _descendants(row: SessionRow, children: Mapping[str, Sequence[SessionRow]]) -> Iterator[SessionRow]:
    """The child sessions of a session and theirs, the innermost first."""
    for child in children.get(row.session_id, ()):
        yield from _descendants(child, children)
        yield child


def _why_kept(
    store: Store, family: Iterable[SessionRow], removal: SessionRemoval, held: frozenset[str] = frozenset()
) -> str:
    """Why a session with its children is not deleted; empty if it is."""
    *children, parent = family
    for row in (parent, *children):
        where = "" if row is parent else f"child session {row.session_id}: "
        if row.session_id in held:
            return f"{where}{_HELD}"
        try:
            calls = [] if removal.with_open_calls else list(open_calls_in_store(store, row))
        except (StoreCorruptError, UnknownTypeError) as error:
            return f"{where}whether it has open calls cannot be read: {error}"
        if calls:
            more = f", and {count_noun(len(calls) - 1, 'more open call')}" if len(calls) > 1 else ""
            return f"{where}call {calls[0].call} of {calls[0].tool} is {calls[0].state}{more}"
    return ""


def _total(sizes: Iterable[SessionSize]) -> SessionSize:
    columns = list(zip(*sizes, strict=True))
    return SessionSize(*map(sum, columns)) if columns else SessionSize(0, 0, 0, 0)


# ---------------------------------------------------------------------------------------------------------- the removal


def _remove(  # noqa: PLR0913, PLR0917 - the parts of one command
    screen: Screen,
    store: Store,
    plan: _Plan,
    removal: SessionRemoval,
    options: StoreOptions,
    named: bool,  # noqa: FBT001
) -> int:
    if not options.as_json:
        screen.table(_GOING, plan.going, most=PAGE)
        screen.table(_KEPT, list(plan.kept.items()), most=PAGE)
    needs_yes = plan.going and not (removal.yes or removal.dry_run)
    if needs_yes and not screen.confirm(f"Delete {plan.words}? This cannot be undone."):
        screen.remark("Nothing was deleted.")
        return 1
    done = plan
    if not removal.dry_run:
        for session_id in plan.unfinished:
            store.finish_deletion(session_id)
        reasons = [(tree, _delete(store, tree.row, tree.children, removal)) for tree in plan.going]
        later = {tree.row.session_id: why for tree, why in reasons if why}
        done = _Plan([tree for tree, why in reasons if not why], {**plan.kept, **later}, plan.unfinished)
    _report(screen, plan, done, dry_run=removal.dry_run, as_json=options.as_json)
    # A session that is named is to be deleted; of those that a filter finds, some may be kept.
    return 1 if set(done.kept) - (set() if named else set(plan.kept)) else 0


def _delete(store: Store, row: SessionRow, children: Sequence[SessionRow], removal: SessionRemoval) -> str:
    """Delete a session and its children; returns why it is kept, or nothing."""
    try:
        with held_session(store, row.session_id, wait=timedelta(0)) as lock:
            why = _CHANGED if lock.row.head != row.head else _why_kept(store, (*children, row), removal)
            for child in () if why else children:
                if why := _delete(store, child, (), removal):
                    return f"child session {child.session_id}: {why}"
            if not why:
                store.delete_session(lock)
            return why
    except SessionLockedError:
        return _HELD
    except SessionNotFoundError:  # another process has deleted it since
        return ""


def _report(screen: Screen, plan: _Plan, done: _Plan, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        names = [row.session_id for tree in done.going for row in (*tree.children, tree.row)]
        nothing: list[str] = []
        deleted, would_delete, completed = (nothing, names, nothing) if dry_run else (names, nothing, plan.unfinished)
        kept = [{"session_id": name, "because": why} for name, why in done.kept.items()]
        document = {"dry_run": dry_run, "deleted": deleted, "would_delete": would_delete, "completed": completed}
        screen.json(document | {"kept": kept} | done.size._asdict())
        return
    if plan.unfinished and not dry_run:
        screen.say(f"Completed the deletion of {count_noun(len(plan.unfinished), 'session')}, which had been cut off.")
    if not plan.going and not plan.unfinished:
        screen.note("No session to delete.")
    elif done.going:
        screen.say(f"{'Would delete' if dry_run else 'Deleted'} {done.words}.")
    for name in done.kept.keys() - plan.kept.keys():
        screen.fault(f"session {name} was kept: {done.kept[name]}")
