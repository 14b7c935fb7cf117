"""`handrail sessions delete|prune`: deletes sessions, with what belongs to them alone.

A session is deleted with its child sessions, the children first: a process that dies in between leaves a parent that
the same command deletes. Forks go before their origin, which stays if one of them does. What was shown is looked at
again once the session is held, because another process may have used it since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter
from typing import NamedTuple

from cyclopts import CycloptsError, Parameter

from handrail.cli.options import DryRun, StoreOptions, Yes, check_can_ask
from handrail.cli.screen import Field, Screen
from handrail.cli.sessions.listing import SessionFilter
from handrail.errors import SessionError, SessionLockedError, SessionNotFoundError, StoreCorruptError, UnknownTypeError
from handrail.operations.sessions import find_session, know_conversations, last_used
from handrail.serde.formatting import count_noun
from handrail.session.open_calls import open_calls_in_store
from handrail.session.persistence.loading import held_session
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store

_HELD = "a process has it open"
_CHANGED = "it was used meanwhile"


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRemoval:
    """The options of a removal of sessions.

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
    row: SessionRow
    children: Sequence[SessionRow]
    used_at: datetime

    @property
    def ids(self) -> set[str]:
        return {row.session_id for row in (*self.children, self.row)}


class _Plan(NamedTuple):
    trees: Sequence[_Tree]
    reasons: Mapping[str, str]

    @property
    def words(self) -> str:
        return count_noun(sum(1 + len(tree.children) for tree in self.trees), "session")


_TREE_FIELDS: tuple[Field[_Tree], ...] = (
    Field("session", lambda tree: tree.row.session_id),
    Field("last used", lambda tree: tree.used_at),
    Field("children", lambda tree: len(tree.children)),
)
_REASON_FIELDS: tuple[Field[tuple[str, str]], ...] = (Field("kept", itemgetter(0)), Field("because", itemgetter(1)))


def delete_sessions(
    *sessions: str, removal: SessionRemoval = SessionRemoval(), options: StoreOptions = StoreOptions()
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
        rows = [find_session(store, name) for name in dict.fromkeys(sessions)]
        return _remove(screen, store, _make_plan(store, rows, removal), removal, options, by_name=True)


def prune_sessions(
    *,
    selection: SessionFilter = SessionFilter(),
    removal: SessionRemoval = SessionRemoval(),
    options: StoreOptions = StoreOptions(),
) -> int:
    """Delete the sessions that were not used for some time, as `sessions delete` does. Needs --older-than.

    Child sessions go with their parent, and are not looked at on their own. Sessions that a process has open, or with
    open calls, are kept.

    Example: `handrail sessions prune --older-than 30d --state ended --dry-run`
    """
    if selection.older_than is None:
        raise CycloptsError(msg="how old must they be? Give --older-than, such as 30d")
    screen = Screen()
    check_can_ask(screen, "deletes sessions", yes=removal.yes or removal.dry_run)
    with options.open(writing=not removal.dry_run) as store:
        rows = [row for row in selection.select(store) if not _is_child(row) or store.find(row.parent or "") is None]
        return _remove(screen, store, _make_plan(store, rows, removal), removal, options, by_name=False)


# ------------------------------------------------------------------------------------------------------------- the plan


def _make_plan(store: Store, rows: Sequence[SessionRow], removal: SessionRemoval) -> _Plan:
    know_conversations()
    in_use = store.held_sessions()
    children = _children(store)
    trees: list[_Tree] = []
    reasons: dict[str, str] = {}
    below = {row.session_id for entry in rows for row in _descendants(entry, children)}
    earlier = set[str]()
    # A fork is younger than its origin, and goes before it.
    for row in sorted(rows, key=attrgetter("created_at"), reverse=True):
        if row.session_id in below:  # goes with its parent, which was named, too
            continue
        tree = _Tree(row, list(_descendants(row, children)), last_used(store, row))
        forks = {fork for name in tree.ids for fork in store.forks(name)} - tree.ids - earlier
        if why := _reason_to_keep(store, (*tree.children, row), removal, in_use):
            reasons[row.session_id] = why
        elif forks:
            reasons[row.session_id] = f"its fork {min(forks)} has entries from it"
        else:
            trees.append(tree)
            earlier |= tree.ids
    return _Plan(trees, reasons)


def _is_child(row: SessionRow) -> bool:
    return row.parent is not None and row.session_id.startswith(f"{row.parent}/")


def _children(store: Store) -> Mapping[str, list[SessionRow]]:
    children: dict[str, list[SessionRow]] = defaultdict(list)
    for row in store.sessions():
        if row.parent is not None and _is_child(row):
            children[row.parent].append(row)
    return children


def _descendants(row: SessionRow, children: Mapping[str, Sequence[SessionRow]]) -> Iterator[SessionRow]:
    for child in children.get(row.session_id, ()):
        yield from _descendants(child, children)
        yield child


def _reason_to_keep(
    store: Store, family: Iterable[SessionRow], removal: SessionRemoval, in_use: frozenset[str] = frozenset()
) -> str:
    *children, parent = family
    for row in (parent, *children):
        where = "" if row is parent else f"child session {row.session_id}: "
        if row.session_id in in_use:
            return f"{where}{_HELD}"
        try:
            calls = [] if removal.with_open_calls else list(open_calls_in_store(store, row))
        except (StoreCorruptError, UnknownTypeError) as error:
            return f"{where}whether it has open calls cannot be read: {error}"
        if calls:
            more = f", and {count_noun(len(calls) - 1, 'more open call')}" if len(calls) > 1 else ""
            return f"{where}call {calls[0].call} of {calls[0].tool} is {calls[0].state}{more}"
    return ""


# ---------------------------------------------------------------------------------------------------------- the removal


def _remove(  # noqa: PLR0913, PLR0917 - the parts of one command
    screen: Screen,
    store: Store,
    plan: _Plan,
    removal: SessionRemoval,
    options: StoreOptions,
    by_name: bool,  # noqa: FBT001
) -> int:
    if not options.as_json:
        screen.table(_TREE_FIELDS, plan.trees)
        screen.table(_REASON_FIELDS, list(plan.reasons.items()))
    needs_yes = plan.trees and not (removal.yes or removal.dry_run)
    if needs_yes and not screen.confirm(f"Delete {plan.words}? This cannot be undone."):
        screen.remark("Nothing was deleted.")
        return 1
    done = plan
    if not removal.dry_run:
        reasons = [(tree, _delete(store, tree.row, tree.children, removal)) for tree in plan.trees]
        later = {tree.row.session_id: why for tree, why in reasons if why}
        done = _Plan([tree for tree, why in reasons if not why], {**plan.reasons, **later})
    _report(screen, plan, done, dry_run=removal.dry_run, as_json=options.as_json)
    # A session that is named is to be deleted; of those that a filter finds, some may be kept.
    return 1 if set(done.reasons) - (set() if by_name else set(plan.reasons)) else 0


def _delete(store: Store, row: SessionRow, children: Sequence[SessionRow], removal: SessionRemoval) -> str:
    try:
        with held_session(store, row.session_id, wait=timedelta(0)) as lock:
            why = _CHANGED if lock.row.head != row.head else _reason_to_keep(store, (*children, row), removal)
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
    except SessionError as error:  # another process has forked it since
        return str(error)


def _report(screen: Screen, plan: _Plan, done: _Plan, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        names = [row.session_id for tree in done.trees for row in (*tree.children, tree.row)]
        deleted, would_delete = ([], names) if dry_run else (names, [])
        reasons = [{"session_id": name, "because": why} for name, why in done.reasons.items()]
        screen.json({"dry_run": dry_run, "deleted": deleted, "would_delete": would_delete, "kept": reasons})
        return
    if not plan.trees:
        screen.note("No session to delete.")
    elif done.trees:
        screen.say(f"{'Would delete' if dry_run else 'Deleted'} {done.words}.")
    for name in done.reasons.keys() - plan.reasons.keys():
        screen.fault(f"session {name} was kept: {done.reasons[name]}")
