"""`handrail ledger reconcile|invalidate|prune`: a person's decisions about effects.

`reconcile` and `invalidate` act on the rows that they have read: one that was changed since stays as it is. A person,
or the reconcilers of an agent or a program, find out whether an effect has happened.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Literal

from cyclopts import CycloptsError, Parameter

from handrail.adapters.tool_executor import ToolExecutor
from handrail.cli.agents import imports_unsearched, need_extra
from handrail.cli.ledger.show import EFFECT, Partition, ShownEffect, find_effect, newest, with_agents
from handrail.cli.options import MORE_THAN_ZERO, PAGE, DryRun, StoreOptions, Yes, check_can_ask
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Screen
from handrail.errors import LedgerError, SessionError
from handrail.prompt.signature import DAY
from handrail.runtime import EffectLedger
from handrail.runtime.ledger import effects
from handrail.runtime.ledger.effects import AppliedByHand, EffectResult, Finding, NotApplied, is_correctable
from handrail.serde.formatting import count_noun, format_size
from handrail.session import Session
from handrail.store import EffectRow, Store
from handrail.store.protocol import change_effect
from handrail.waiting import run_on_new_loop

_CHANGED = "has been changed concurrently, so it was left unchanged; look at it again"


def _check_json(_type: object, text: str | None) -> None:
    # Python reads `NaN` and `Infinity` by default, which are not JSON; their values cannot be written as JSON.
    if text is not None:
        json.dumps(json.loads(text), allow_nan=False)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFinding:
    """A person's finding about an effect.

    Attributes:
        happened: Whether the effect has happened.
        applied: Instead: it is done, and what its tool would write for it has been written by hand. The tool's `apply`
            does not run any more, and its call is no longer open.
        message: If it has: the message for a model that asks for it again.
        value: If it has: the value of the result, as the tool would return it; a text is quoted. Unless given, a result
            that is recorded keeps its value; of any other it counts as lost.
        ttl: If it has: how long until the same call may run again, such as 36h or 30d, or `never`. A day unless given.
            The call of an effect without a declared key (`call:...`) never runs again.
        why: If it has not: how that is known. With --applied: who has applied it, and how. For people.
    """

    happened: Annotated[bool | None, Parameter(negative="--not-happened")] = None
    applied: bool = False
    message: Annotated[str | None, Parameter(metavar="TEXT")] = None
    value: Annotated[str | None, Parameter(metavar="JSON", validator=_check_json)] = None
    ttl: Annotated[timedelta | Literal["never"], MORE_THAN_ZERO, Parameter(show_choices=False)] = DAY
    why: Annotated[str | None, Parameter(metavar="TEXT")] = None

    def check(self) -> None:
        """Check that the options are consistent.

        Raises:
            CycloptsError: they are not.
        """
        if self.applied == (self.happened is not None):
            raise CycloptsError(msg="has it happened? Give one of --happened, --not-happened and --applied")
        if (self.why if self.happened else self.message or self.value) is not None:
            msg = "--message and --value go with --happened; --why goes with --not-happened and --applied"
            raise CycloptsError(msg=msg)

    def of(self, row: EffectRow) -> Finding:
        """The finding, in the form of the ledger."""
        if self.applied:
            return AppliedByHand(f"applied by hand: {self.why}" if self.why else "applied by hand")
        if not self.happened:
            return NotApplied(self.why or "a person has found that it did not happen")
        # ASCII: a lone surrogate is valid JSON, but not valid UTF-8.
        value = None if self.value is None else json.dumps(json.loads(self.value), separators=(",", ":")).encode()
        kept = row.message if is_correctable(row) else f"{row.tool} has been carried out; a person has confirmed it."
        # Only the row of a result that is corrected has a value.
        return EffectResult(self.message or kept, value or row.value, row.exclude_value_from_context)


def reconcile_effect(  # noqa: PLR0913 - the options of the command
    key: str | None = None,
    /,
    *,
    partition: Partition = None,
    ask: Annotated[str | None, Parameter(metavar="NAME")] = None,
    every: Annotated[bool, Parameter(name="--all")] = False,
    finding: EffectFinding = EffectFinding(),
    options: StoreOptions = StoreOptions(),
) -> int:
    """Record the outcome of an effect that was started and has no recorded end.

    That is one in the state `unknown` or `lapsed`. Check the outside world first (the account, the outbox): the ledger
    cannot verify your answer. If the effect has happened, the same call is answered with that from now on; if it has
    not, the same call may run again. The result of an effect that is done can be corrected until it is applied. Where
    its program cannot apply it, do by hand what its tool would write, and record that by --applied.

    With --ask the tools find out themselves, and what has happened is applied to its session.

    Example: `handrail ledger reconcile session:refund:cfb3066e1951 --happened --message "A-2 is refunded"`

    Args:
        key: The key of the effect, or give --all with --ask.
        partition: Whose key is meant.
        ask: Ask the tools' own `reconcile` instead: of an agent file, or of MODULE:FUNCTION, which takes a Session and
            returns its ToolExecutor.
        every: With --ask: about all that is unknown.
        finding: What a person has found out.
        options: The store and the output format.
    """
    if every if key is not None else not (every and ask):
        raise CycloptsError(msg="give either the KEY of one effect, or --all with --ask NAME")
    if ask is None:
        finding.check()
        return _record_finding(key or "", partition, finding, options)
    if finding != EffectFinding():
        raise CycloptsError(msg="--ask is answered by the tools; leave out what a person has found")
    with redirect_stdout(sys.stderr):
        settle = _named_settler(ask)
    return _ask_reconcilers(settle, key, partition, options)


def _record_finding(key: str, partition: str | None, finding: EffectFinding, options: StoreOptions) -> int:
    with options.open(writing=True) as store:
        row = find_effect(store, key, partition)
        # Compares the row that was read with the one in the store, so that a decision never applies to another state.
        ttl = None if finding.ttl == "never" else finding.ttl
        if not EffectLedger(store).resolve(row, finding.of(row), ttl=ttl):
            raise LedgerError(f"the effect {key} {_CHANGED}", key=key, status=row.status)
        # Read again for the output; the row may have been removed since, and then the one that was read is printed.
        (standing,) = with_agents(store, [store.get(row.partition, key) or row])
    if options.as_json:
        Screen().json(EFFECT.json(standing))
    elif finding.applied:
        Screen().say(f"Recorded that the result of {key} has been applied by hand.")
    elif finding.happened:
        Screen().say(f"Recorded that {key} has happened: {standing.row.message}")
    else:
        Screen().say(f"Recorded that {key} has not happened, so the same call may run again.")
    return DONE


# ---------------------------------------------------------------------------------------------------------- the tools


def _ask_reconcilers(
    settle: Callable[[Session], object], key: str | None, partition: str | None, options: StoreOptions
) -> int:
    """Ask about all unknown effects, or those of the session of `key`; returns the exit code."""
    screen = Screen()
    with options.open(writing=True) as store:
        now = store.now()
        unknown = (row for row in store.rows() if row.status == "unknown" or effects.lease_expired(row, now))
        rows = newest(unknown, None) if key is None else [find_effect(store, key, partition)]
        for session_id in dict.fromkeys(row.owner.session_id for row in rows):
            try:
                with Session.open(store, session_id, create=False) as session, redirect_stdout(sys.stderr):
                    settle(session)
            except SessionError as error:  # it is open elsewhere, or only in memory
                screen.remark(f"session {session_id}: its tools are not asked: {error}")
        standing = [store.get(row.partition, row.key) or row for row in rows]
    for row in standing:
        if options.as_json:
            screen.json(EFFECT.json(ShownEffect(row, now)), lines=True)
        else:
            unknown_yet = "is still unknown. Find out, and record it with handrail ledger reconcile"
            screen.say(f"{row.key} {_SETTLED.get(row.status, unknown_yet)}.")
    return DONE if all(row.status in _SETTLED for row in standing) else FAILED


_SETTLED = {"done": "has happened", "failed": "has not happened, so the same call may run again"}


def _named_settler(name: str) -> Callable[[Session], object]:
    """What settles the open calls of a session: an agent, or a function of a program.

    Raises:
        CycloptsError: `name` is neither an agent file nor `module:function`.
        HandrailError: the agent or the program cannot be used.
    """
    if name.endswith(".agent"):
        need_extra()
        with imports_unsearched():
            from handrail.agents import RunOptions, load_agent  # noqa: PLC0415 - needs the extra, which is there
        agent = load_agent(name)
        return lambda session: run_on_new_loop(agent.settle_open_async(RunOptions(session=session)))
    sys.path.insert(0, str(Path.cwd()))
    wanted = f"--ask {name}: name an agent file, or MODULE:FUNCTION, which takes a Session and returns its ToolExecutor"
    try:
        executor_of = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise CycloptsError(msg=f"{wanted}: {error}") from error

    def settle(session: Session) -> None:
        executor = executor_of(session) if callable(executor_of) else None
        if not isinstance(executor, ToolExecutor):
            raise CycloptsError(msg=wanted)
        executor.settle_open()

    return settle


# ------------------------------------------------------------------------------------------------------------- removal


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """How to remove effects.

    Attributes:
        force: Remove also what is running, unknown or not applied. It may then happen twice.
        yes: whether to remove without asking.
        dry_run: whether to remove nothing.
    """

    force: bool = False
    yes: Yes = False
    dry_run: DryRun = False


def invalidate_effects(
    key: str | None = None,
    /,
    *,
    tool: Annotated[str | None, Parameter(metavar="NAME")] = None,
    partition: Partition = None,
    removal: Removal = Removal(),
    options: StoreOptions = StoreOptions(),
) -> int:
    """Forget effects, so that the same calls run again.

    What is running or unknown stays, because it could happen twice, and so does what is done and not applied, because
    its result would be lost as well: see `reconcile`, or give --force.

    Example: `handrail ledger invalidate --tool refund --dry-run`

    Args:
        key: The key of the effect, or give --tool.
        tool: Forget all effects of this tool.
        partition: Whose key is meant.
        removal: How to remove them.
        options: The store and the output format.
    """
    if (key is None) == (tool is None):
        raise CycloptsError(msg="give either the KEY of one effect, or --tool NAME for all of a tool")
    screen = Screen()
    check_can_ask(screen, "forgets what has been done", yes=removal.yes or removal.dry_run)
    # A dry run opens the store for reading, so it cannot change anything by mistake.
    with options.open(writing=not removal.dry_run) as store:
        if key is not None:
            rows = [find_effect(store, key, partition)]
        else:
            rows = newest((row for row in store.rows() if row.tool == tool), None)
        going = with_agents(store, (row for row in rows if removal.force or effects.removable(row)))
        _check_removable(store, rows, going, key or f"of the tool {tool}")
        if not (removal.yes or options.as_json):
            EFFECT.table(screen, going, most=PAGE)
        named = _named(going)
        if not (removal.yes or removal.dry_run or screen.confirm(f"Forget {named}? The same call runs again then.")):
            screen.remark("Nothing was changed.")
            return FAILED
        # Each row is removed only if it is still the one that was shown.
        removed = [] if removal.dry_run else [each for each in going if change_effect(store, each.row, None)]
    stayed, missed = len(rows) - len(going), 0 if removal.dry_run else len(going) - len(removed)
    if options.as_json:
        counts = {"removed": len(removed), "kept": stayed, "changed": missed, "dry_run": removal.dry_run}
        screen.json({**counts, "effects": [EFFECT.json(each) for each in (going if removal.dry_run else removed)]})
        return FAILED if missed else DONE
    if removed or removal.dry_run:
        screen.say(
            f"Would forget {named}." if removal.dry_run else f"Forgot {_named(removed)}; the same call runs again."
        )
    if stayed:
        screen.note(f"{count_noun(stayed, 'effect')} stayed, being running, unknown or not applied.")
    if missed:
        screen.fault(f"{count_noun(missed, 'effect')} {_CHANGED}")
    return FAILED if missed else DONE


def _check_removable(store: Store, rows: Sequence[EffectRow], going: Sequence[ShownEffect], what: str) -> None:
    if not going:
        states = " and ".join(sorted({each.state for each in with_agents(store, rows)}))
        why = (
            f"the effect {what} is {states}. Forgotten, it could happen twice, or its result would be lost: wait for "
            "its end, or record it with handrail ledger reconcile; --force removes it anyway"
        )
        text = why if rows else f"{store.url} has no effect {what}; handrail ledger list shows all"
        raise LedgerError(text, key=what, status=rows[0].status if rows else "absent")


def _named(effects: Sequence[ShownEffect]) -> str:
    return effects[0].row.key if len(effects) == 1 else count_noun(len(effects), "effect")


def prune_effects(*, yes: Yes = False, dry_run: DryRun = False, options: StoreOptions = StoreOptions()) -> int:
    """Remove the effects that have expired. They count as absent already; this only frees space.

    They are removed in many short transactions, so that others can write in between.

    Example: `handrail ledger prune --dry-run`
    """
    screen = Screen()
    check_can_ask(screen, "removes expired effects", yes=yes or dry_run)
    with options.open(writing=not dry_run) as store:
        expired = store.expired(store.now())
        words = f"{count_noun(expired.rows, 'expired effect')} ({format_size(expired.bytes)})"
        if expired.rows and not (yes or dry_run) and not screen.confirm(f"Remove {words}?"):
            screen.remark("Nothing was removed.")
            return FAILED
        removed = 0 if dry_run else EffectLedger(store).prune_expired()
    if options.as_json:
        would_remove = expired.rows if dry_run else 0
        screen.json({"removed": removed, "would_remove": would_remove, "bytes": expired.bytes, "dry_run": dry_run})
    else:
        screen.say(f"Would remove {words}." if dry_run else f"Removed {count_noun(removed, 'expired effect')}.")
    return DONE
