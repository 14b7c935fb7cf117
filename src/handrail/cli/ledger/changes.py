"""`handrail ledger reconcile|invalidate|prune`: a person's decisions about effects.

`reconcile` and `invalidate` act on the rows that they have shown: one that was changed since stays as it is.

What a person has found out of an effect comes from the command line, or from questions on a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from cyclopts import CycloptsError, Parameter

from handrail.cli.ledger import show
from handrail.cli.ledger.show import Partition, Shown, found_effect, newest, print_effects, with_agents
from handrail.cli.options import AS_SET, PAGE, StoreOptions
from handrail.cli.screen import Screen
from handrail.errors import LedgerError
from handrail.prompt.idempotency import DAY
from handrail.runtime import EffectLedger
from handrail.runtime.ledger.effects import AppliedByHand, EffectResult, Finding, NotApplied
from handrail.runtime.ledger.states import is_correctable, key_expired, removable, resolved_row
from handrail.serde.formatting import count_noun, format_size
from handrail.store import EffectRow, Store
from handrail.store.protocol import change_effect

DryRun = Annotated[bool, Parameter(help="Remove nothing; only show what would be removed.")]
"""Whether to remove nothing."""

Yes = Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask. Needed without a terminal.")]
"""Whether to remove without asking."""

_CHANGED = "has been changed concurrently, so it was left unchanged; look at it again"


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFinding:
    """A person's finding about an effect.

    Attributes:
        happened: whether it has happened; `None` until that is decided.
        applied: whether its result has been applied by hand.
        message: the message for the model, if it has.
        value: its value as JSON text, if it has; `None` if unknown.
        ttl: how long that is replayed.
        why: how it is known that it has not happened, or who has applied its result.
    """

    happened: Annotated[
        bool | None,
        Parameter(negative="--not-happened", help="Whether the effect has happened. On a terminal you are asked."),
    ] = None
    applied: Annotated[
        bool,
        Parameter(
            negative="",
            help="Instead: it is done, and what its tool would write for it has been written by hand. The tool's "
            "`apply` does not run any more, and its call is no longer open.",
        ),
    ] = False
    message: Annotated[
        str | None, Parameter(metavar="TEXT", help="If it has: the message for a model that asks for it again.")
    ] = None
    value: Annotated[
        str | None,
        Parameter(
            metavar="JSON",
            help="If it has: the value of the result, as the tool would return it. Unless given, a result that is "
            "recorded keeps its value; of any other it counts as lost.",
        ),
    ] = None
    ttl: Annotated[
        timedelta | Literal["never"],
        Parameter(
            metavar="TIME",
            show_choices=False,
            help="If it has: how long until the same call may run again, such as 36h or 30d, or `never`. "
            "A day unless given. The call of an effect without a declared key (`call:...`) never runs again.",
        ),
    ] = DAY
    why: Annotated[
        str | None,
        Parameter(
            metavar="TEXT",
            help="If it has not: how that is known. With --applied: who has applied it, and how. For people.",
        ),
    ] = None

    def check(self) -> None:
        """Check that the options are consistent.

        Raises:
            CycloptsError: they are not, or the value is not JSON.
        """
        if self.applied and self.happened is not None:
            raise CycloptsError(msg="--applied is for an effect that is recorded as done; give it alone, with --why")
        if self.why is not None and self.happened:
            # `happened` may still be `None` here: then `--why` answers the second question.
            raise CycloptsError(msg="--why goes with --not-happened or --applied; --happened takes --message")
        for name, given in (("--message", self.message), ("--value", self.value)):
            if given is not None and (self.applied or self.happened is False):
                other = "--applied" if self.applied else "--not-happened"
                raise CycloptsError(msg=f"{name} goes with --happened; {other} takes --why")
        if self.value is not None and (wrong := _fault_of_json(self.value)):
            raise CycloptsError(msg=f"--value is not JSON ({wrong}); text needs quotes of its own: --value '\"text\"'")
        if self.ttl != "never" and self.ttl <= timedelta(0):
            raise CycloptsError(msg=f"--ttl is {self.ttl}; it must be more than zero, or `never`")

    @property
    def lasting(self) -> timedelta | None:
        """The time to live, in the form of the ledger."""
        return None if self.ttl == "never" else self.ttl

    def of(self, row: EffectRow) -> Finding:
        """The finding, in the form of the ledger."""
        if self.applied:
            return AppliedByHand(f"applied by hand: {self.why}" if self.why else "applied by hand")
        if not self.happened:
            return NotApplied(self.why or "a person has found that it did not happen")
        # ASCII: a lone surrogate is valid JSON, but not valid UTF-8.
        value = None if self.value is None else json.dumps(json.loads(self.value), separators=(",", ":")).encode()
        message = _default_message(row) if self.message is None else self.message
        # Only the row of a result that is corrected has a value.
        return EffectResult(message, row.value if value is None else value, row.exclude_value_from_context)

    def asked(self, screen: Screen, row: EffectRow) -> EffectFinding | None:
        """The finding with the person's answers; `None` without a decision."""
        answer = (screen.ask("Has it happened? [y = yes, n = no, Enter = leave it as it is]") or "").lower()
        if answer in {"n", "no"}:
            why = self.why or screen.ask("How is that known? (for later readers)")
            return replace(self, happened=False, why=why)
        if answer not in {"y", "yes"}:
            return None
        message = self.message or screen.ask(
            f'The message for a model that asks again? [Enter = "{_default_message(row)}"]'
        )
        value = self.value
        while value is None or _fault_of_json(value):
            enter = "as it is recorded" if is_correctable(row) else "unknown"
            value = screen.ask(f"The value of its result, as JSON? [Enter = {enter}]")
            if not value:
                break
        return replace(self, happened=True, message=message or None, value=value or None)


NOT_GIVEN = EffectFinding()
"""The defaults."""


def _default_message(row: EffectRow) -> str:
    if is_correctable(row):
        return row.message
    return f"{row.tool} has been carried out; a person has confirmed it."


def _fault_of_json(text: str) -> str:
    """Why a text is not JSON; empty if it is."""
    # `json.loads` accepts `NaN` and `Infinity` by default, which are not JSON.
    try:
        json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        return str(error)
    return ""


def _no_constant(name: str) -> Any:  # noqa: ANN401 - the signature that `json` requires
    raise ValueError(f"{name} is not a number of JSON")


def reconcile_effect(  # noqa: PLR0913 - the options of the command
    key: Annotated[
        str | None, Parameter(metavar="KEY", help="The key of the effect, or give --all with --ask.")
    ] = None,
    /,
    *,
    partition: Partition = None,
    ask: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            help="Ask the tools' own `reconcile` instead: of an agent file, or of MODULE:FUNCTION, which takes a "
            "Session and returns its ToolExecutor.",
        ),
    ] = None,
    every: Annotated[bool, Parameter(name="--all", negative="", help="With --ask: about all that is unknown.")] = False,
    finding: EffectFinding = NOT_GIVEN,
    options: StoreOptions = AS_SET,
) -> int:
    """Record the outcome of an effect that was started and has no recorded end.

    That is one in the state `unknown` or `lapsed`. Check the outside world first (the account, the outbox): the ledger
    cannot verify your answer. If the effect has happened, the same call is answered with that from now on; if it has
    not, the same call may run again. The result of an effect that is done can be corrected until it is applied. Where
    its program cannot apply it, do by hand what its tool would write, and record that by --applied.

    With --ask the tools find out themselves, and what has happened is applied to its session.
    """
    finding.check()
    if every if key is not None else not (every and ask):
        raise CycloptsError(msg="give either the KEY of one effect, or --all with --ask NAME")
    if ask is not None:
        if finding != NOT_GIVEN:
            raise CycloptsError(msg="--ask is answered by the tools; leave out what a person has found")
        from handrail.cli.ledger.asking import ask_reconcilers  # noqa: PLC0415 - it loads what agents need

        return ask_reconcilers(ask, key, partition, options)
    return _record_finding(key or "", partition, finding, options)


def _record_finding(key: str, partition: str | None, finding: EffectFinding, options: StoreOptions) -> int:
    screen = Screen()
    # Asked on a terminal only, and before the store is opened.
    is_decided = finding.applied or finding.happened is not None
    if not is_decided and not screen.can_ask:
        raise CycloptsError(msg="has it happened? Give --happened or --not-happened; it is asked only on a terminal")
    with options.open(writing=True) as store:
        row = found_effect(store, key, partition)
        now = store.now()
        looked = finding.of(row) if is_decided else EffectResult("", None)
        resolved_row(row, looked, now=now, ttl=DAY, forget=DAY)  # raises if its outcome is known
        if not is_decided:
            ((_, agent),) = with_agents(store, [row])
            screen.record(show.effect_fields(row, now, agent), aside=True)
            answered = finding.asked(screen, row)
            if answered is None:
                screen.remark("Nothing was changed.")
                return 1
            finding = answered
        # Compares the row that was shown with the one in the store, so that a decision never applies to another state.
        if not EffectLedger(store).resolve(row, finding.of(row), ttl=finding.lasting):
            raise LedgerError(f"the effect {key} {_CHANGED}", key=key, status=row.status)
        # Read again for the output; the row may have been removed since, and then the shown one is printed.
        standing = store.get(row.partition, key) or row
        ((_, agent),) = with_agents(store, [standing])
    if options.as_json:
        screen.json(show.effect_json(standing, now, agent))
    elif finding.applied:
        screen.say(f"Recorded that the result of {key} has been applied by hand.")
    elif finding.happened and is_correctable(row):
        screen.say(f"Corrected the result of {key}, which is not applied yet: {standing.message}")
    elif finding.happened:
        screen.say(f"Recorded that {key} has happened: {standing.message}")
    else:
        screen.say(f"Recorded that {key} has not happened, so the same call may run again.")
    return 0


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """How to remove effects.

    Attributes:
        force: whether to remove also those that could then happen twice.
        yes: whether to remove without asking.
        dry_run: whether to remove nothing.
    """

    force: Annotated[
        bool, Parameter(help="Remove also what is running, unknown or not applied. It may then happen twice.")
    ] = False
    yes: Yes = False
    dry_run: DryRun = False


def invalidate_effects(
    key: Annotated[str | None, Parameter(metavar="KEY", help="The key of the effect, or give --tool.")] = None,
    /,
    *,
    tool: Annotated[str | None, Parameter(metavar="NAME", help="Forget all effects of this tool.")] = None,
    partition: Partition = None,
    removal: Removal = Removal(),
    options: StoreOptions = AS_SET,
) -> int:
    """Forget effects, so that the same calls run again.

    What is running or unknown stays, because it could happen twice, and so does what is done and not applied, because
    its result would be lost as well: see `reconcile`, or give --force.
    """
    if (key is None) == (tool is None):
        raise CycloptsError(msg="give either the KEY of one effect, or --tool NAME for all of a tool")
    if tool is not None and partition is not None:
        raise CycloptsError(msg="--partition goes with KEY, not with --tool")
    screen = Screen()
    if not (removal.yes or removal.dry_run or screen.can_ask):
        raise CycloptsError(msg="this forgets what has been done; without a terminal to ask on, give --yes")
    # A dry run opens the store for reading, so it cannot change anything by mistake.
    with options.open(writing=not removal.dry_run) as store:
        now = store.now()
        if tool is None:
            rows = [found_effect(store, key or "", partition)]
        else:
            rows = newest((row for row in store.rows() if row.tool == tool), None)
        going = [row for row in rows if removal.force or removable(row)]
        if not going:
            raise LedgerError(
                _why_none(store, rows, tool, now), key=key or "", status=rows[0].status if rows else "absent"
            )
        shown = with_agents(store, going)
        if not (removal.yes or removal.dry_run or _confirmed(screen, shown, now)):
            screen.remark("Nothing was changed.")
            return 1
        # Each row is removed only if it is still the one that was shown.
        removed = [] if removal.dry_run else [each for each in shown if change_effect(store, each[0], None)]
    return _report(screen, options, _Removed(shown, removed, len(rows) - len(going), now, removal.dry_run))


def prune_effects(*, yes: Yes = False, dry_run: DryRun = False, options: StoreOptions = AS_SET) -> int:
    """Remove the effects that have expired. They count as absent already; this only frees space.

    They are removed in many short transactions, so that others can write in between.
    """
    screen = Screen()
    if not (yes or dry_run or screen.can_ask):
        raise CycloptsError(
            msg="this removes expired effects; without a terminal to ask on, give --yes, or --dry-run to look"
        )
    with options.open(writing=not dry_run) as store:
        now = store.now()
        expired = store.expired(now)
        if dry_run and expired.rows and not options.as_json:
            rows = newest((row for row in store.rows() if key_expired(row, now)), PAGE)
            print_effects(screen, with_agents(store, rows), now)
            if expired.rows > PAGE:
                screen.note(f"And {count_noun(expired.rows - PAGE, 'older effect')}.")
        words = f"{count_noun(expired.rows, 'expired effect')} ({format_size(expired.bytes)})"
        if expired.rows and not (yes or dry_run):
            answer = screen.ask(f"Remove {words}? [y = yes, Enter = no]")
            if (answer or "").lower() not in {"y", "yes"}:
                screen.remark("Nothing was removed.")
                return 1
        removed = 0 if dry_run else EffectLedger(store).prune_expired()
    if options.as_json:
        would_remove = expired.rows if dry_run else 0
        screen.json({"removed": removed, "would_remove": would_remove, "bytes": expired.bytes, "dry_run": dry_run})
    else:
        screen.say(f"Would remove {words}." if dry_run else f"Removed {count_noun(removed, 'expired effect')}.")
    return 0


@dataclass(frozen=True, slots=True)
class _Removed:
    """The outcome of a removal: the selected rows, the removed ones, and how many were excluded."""

    going: Sequence[Shown]
    removed: Sequence[Shown]
    kept: int
    now: datetime
    dry_run: bool


def _why_none(store: Store, rows: Sequence[EffectRow], tool: str | None, now: datetime) -> str:
    if not rows:
        return f"{store.url} has no effect of a tool {tool}; handrail ledger list shows all"
    if tool is None and rows[0].is_kept_until_applied:
        return (
            f"the effect {rows[0].key} is done, and its result is not applied: forgotten, it would happen twice and "
            "its result would be lost, so nothing was removed. The next run of its session applies it; handrail ledger "
            "reconcile --applied records that a person has; --force removes it anyway"
        )
    one = f"the effect {rows[0].key} is {show.state(rows[0], now)}"
    what = one if tool is None else f"all effects of {tool} are running, unknown or not applied"
    return (
        f"{what}: forgotten, it could happen twice, so nothing was removed. Wait for its end, or record it with "
        "handrail ledger reconcile; --force removes it anyway"
    )


def _confirmed(screen: Screen, going: Sequence[Shown], now: datetime) -> bool:
    if len(going) == 1:
        ((row, agent),) = going
        screen.record(show.effect_fields(row, now, agent), aside=True)
    answer = screen.ask(f"Forget {_named(going)}? The same call runs again then. [y = yes, Enter = no]")
    return (answer or "").lower() in {"y", "yes"}


def _report(screen: Screen, options: StoreOptions, came: _Removed) -> int:
    missed = 0 if came.dry_run else len(came.going) - len(came.removed)
    if options.as_json:
        gone = came.going if came.dry_run else came.removed
        effects = [show.effect_json(row, came.now, agent) for row, agent in gone]
        counts = {"removed": len(came.removed), "kept": came.kept, "changed": missed, "dry_run": came.dry_run}
        screen.json({**counts, "effects": effects})
    elif came.dry_run:
        print_effects(screen, came.going, came.now)
        screen.say(f"Would forget {_named(came.going)}.")
    elif came.removed:
        screen.say(f"Forgot {_named(came.removed)}; the same call runs again.")
    if came.kept and not options.as_json:
        screen.note(
            f"{count_noun(came.kept, 'effect')} stayed, being running, unknown or not applied: forgotten, they could "
            "happen twice."
        )
    if missed:
        screen.fault(f"{count_noun(missed, 'effect')} {_CHANGED}")
    return 1 if missed else 0


def _named(shown: Sequence[Shown]) -> str:
    row, _ = shown[0]
    return row.key if len(shown) == 1 else f"{count_noun(len(shown), 'effect')} of {row.tool}"
