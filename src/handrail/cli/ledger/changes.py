"""`handrail ledger reconcile|invalidate|prune`: a person's decisions about effects.

`reconcile` and `invalidate` act on the rows that they have shown: one that was changed since stays as it is.

What a person has found out of an effect comes from the command line, or from questions on a terminal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any, Literal

from cyclopts import CycloptsError, Parameter

from handrail.cli.ledger.show import EFFECT, Partition, ShownEffect, find_effect, newest, with_agents
from handrail.cli.options import AS_SET, MORE_THAN_ZERO, PAGE, DryRun, StoreOptions, Yes, check_can_ask
from handrail.cli.screen import Screen
from handrail.errors import LedgerError
from handrail.prompt.effect import DAY
from handrail.runtime import EffectLedger
from handrail.runtime.ledger import effects
from handrail.runtime.ledger.effects import AppliedByHand, EffectResult, Finding, NotApplied, is_correctable
from handrail.serde.formatting import count_noun, format_size
from handrail.store import EffectRow, Store
from handrail.store.protocol import change_effect

_CHANGED = "has been changed concurrently, so it was left unchanged; look at it again"


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFinding:
    """A person's finding about an effect.

    Attributes:
        happened: Whether the effect has happened. On a terminal you are asked.
        applied: Instead: it is done, and what its tool would write for it has been written by hand. The tool's `apply`
            does not run any more, and its call is no longer open.
        message: If it has: the message for a model that asks for it again.
        value: If it has: the value of the result, as the tool would return it. Unless given, a result that is recorded
            keeps its value; of any other it counts as lost.
        ttl: If it has: how long until the same call may run again, such as 36h or 30d, or `never`. A day unless given.
            The call of an effect without a declared key (`call:...`) never runs again.
        why: If it has not: how that is known. With --applied: who has applied it, and how. For people.
    """

    happened: Annotated[bool | None, Parameter(negative="--not-happened")] = None
    applied: Annotated[bool, Parameter(negative="")] = False
    message: Annotated[str | None, Parameter(metavar="TEXT")] = None
    value: Annotated[str | None, Parameter(metavar="JSON")] = None
    ttl: Annotated[timedelta | Literal["never"], MORE_THAN_ZERO, Parameter(show_choices=False)] = DAY
    why: Annotated[str | None, Parameter(metavar="TEXT")] = None

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
    key: Annotated[str | None, Parameter(metavar="KEY")] = None,
    /,
    *,
    partition: Partition = None,
    ask: Annotated[str | None, Parameter(metavar="NAME")] = None,
    every: Annotated[bool, Parameter(name="--all", negative="")] = False,
    finding: EffectFinding = NOT_GIVEN,
    options: StoreOptions = AS_SET,
) -> int:
    """Record the outcome of an effect that was started and has no recorded end.

    That is one in the state `unknown` or `lapsed`. Check the outside world first (the account, the outbox): the ledger
    cannot verify your answer. If the effect has happened, the same call is answered with that from now on; if it has
    not, the same call may run again. The result of an effect that is done can be corrected until it is applied. Where
    its program cannot apply it, do by hand what its tool would write, and record that by --applied.

    With --ask the tools find out themselves, and what has happened is applied to its session.

    Args:
        key: The key of the effect, or give --all with --ask.
        partition: Whose key is meant.
        ask: Ask the tools' own `reconcile` instead: of an agent file, or of MODULE:FUNCTION, which takes a Session and
            returns its ToolExecutor.
        every: With --ask: about all that is unknown.
        finding: What a person has found out.
        options: The store and the output format.
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
        row = find_effect(store, key, partition)
        looked = finding.of(row) if is_decided else EffectResult("", None)
        effects.resolved_row(row, looked, now=store.now(), ttl=DAY)  # raises if its outcome is known
        if not is_decided:
            screen.record(EFFECT.shown(*with_agents(store, [row])), aside=True)
            answered = finding.asked(screen, row)
            if answered is None:
                screen.remark("Nothing was changed.")
                return 1
            finding = answered
        # Compares the row that was shown with the one in the store, so that a decision never applies to another state.
        if not EffectLedger(store).resolve(row, finding.of(row), ttl=finding.lasting):
            raise LedgerError(f"the effect {key} {_CHANGED}", key=key, status=row.status)
        # Read again for the output; the row may have been removed since, and then the shown one is printed.
        (standing,) = with_agents(store, [store.get(row.partition, key) or row])
    message = standing.row.message
    if options.as_json:
        screen.json(EFFECT.json(standing))
    elif finding.applied:
        screen.say(f"Recorded that the result of {key} has been applied by hand.")
    elif finding.happened and is_correctable(row):
        screen.say(f"Corrected the result of {key}, which is not applied yet: {message}")
    elif finding.happened:
        screen.say(f"Recorded that {key} has happened: {message}")
    else:
        screen.say(f"Recorded that {key} has not happened, so the same call may run again.")
    return 0


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
    key: Annotated[str | None, Parameter(metavar="KEY")] = None,
    /,
    *,
    tool: Annotated[str | None, Parameter(metavar="NAME")] = None,
    partition: Partition = None,
    removal: Removal = Removal(),
    options: StoreOptions = AS_SET,
) -> int:
    """Forget effects, so that the same calls run again.

    What is running or unknown stays, because it could happen twice, and so does what is done and not applied, because
    its result would be lost as well: see `reconcile`, or give --force.

    Args:
        key: The key of the effect, or give --tool.
        tool: Forget all effects of this tool.
        partition: Whose key is meant.
        removal: How to remove them.
        options: The store and the output format.
    """
    if (key is None) == (tool is None):
        raise CycloptsError(msg="give either the KEY of one effect, or --tool NAME for all of a tool")
    if tool is not None and partition is not None:
        raise CycloptsError(msg="--partition goes with KEY, not with --tool")
    screen = Screen()
    check_can_ask(screen, "forgets what has been done", yes=removal.yes, dry_run=removal.dry_run)
    # A dry run opens the store for reading, so it cannot change anything by mistake.
    with options.open(writing=not removal.dry_run) as store:
        if tool is None:
            rows = [find_effect(store, key or "", partition)]
        else:
            rows = newest((row for row in store.rows() if row.tool == tool), None)
        going = with_agents(store, (row for row in rows if removal.force or effects.removable(row)))
        if not going:
            raise _nothing_removable(store, rows, key or "", tool)
        if not (removal.yes or removal.dry_run):
            if len(going) == 1:
                screen.record(EFFECT.shown(going[0]), aside=True)
            if not screen.confirm(f"Forget {_named(going)}? The same call runs again then."):
                screen.remark("Nothing was changed.")
                return 1
        # Each row is removed only if it is still the one that was shown.
        removed = [] if removal.dry_run else [each for each in going if change_effect(store, each.row, None)]
    return _report(screen, options, going, removed, stayed=len(rows) - len(going), dry_run=removal.dry_run)


def prune_effects(*, yes: Yes = False, dry_run: DryRun = False, options: StoreOptions = AS_SET) -> int:
    """Remove the effects that have expired. They count as absent already; this only frees space.

    They are removed in many short transactions, so that others can write in between.
    """
    screen = Screen()
    check_can_ask(screen, "removes expired effects", yes=yes, dry_run=dry_run)
    with options.open(writing=not dry_run) as store:
        now = store.now()
        expired = store.expired(now)
        if dry_run and expired.rows and not options.as_json:
            rows = newest((row for row in store.rows() if effects.key_expired(row, now)), PAGE)
            screen.table(EFFECT.columns, with_agents(store, rows))
            if expired.rows > PAGE:
                screen.note(f"And {count_noun(expired.rows - PAGE, 'older effect')}.")
        words = f"{count_noun(expired.rows, 'expired effect')} ({format_size(expired.bytes)})"
        if expired.rows and not (yes or dry_run) and not screen.confirm(f"Remove {words}?"):
            screen.remark("Nothing was removed.")
            return 1
        removed = 0 if dry_run else EffectLedger(store).prune_expired()
    if options.as_json:
        would_remove = expired.rows if dry_run else 0
        screen.json({"removed": removed, "would_remove": would_remove, "bytes": expired.bytes, "dry_run": dry_run})
    else:
        screen.say(f"Would remove {words}." if dry_run else f"Removed {count_noun(removed, 'expired effect')}.")
    return 0


def _nothing_removable(store: Store, rows: Sequence[EffectRow], key: str, tool: str | None) -> LedgerError:
    if not rows:
        text = f"{store.url} has no effect of a tool {tool}; handrail ledger list shows all"
    elif tool is None and rows[0].is_kept_until_applied:
        text = (
            f"the effect {key} is done, and its result is not applied: forgotten, it would happen twice and its result "
            "would be lost, so nothing was removed. The next run of its session applies it; handrail ledger reconcile "
            "--applied records that a person has; --force removes it anyway"
        )
    else:
        one = f"the effect {key} is {ShownEffect(rows[0], store.now()).state}"
        what = one if tool is None else f"all effects of {tool} are running, unknown or not applied"
        text = (
            f"{what}: forgotten, it could happen twice, so nothing was removed. Wait for its end, or record it with "
            "handrail ledger reconcile; --force removes it anyway"
        )
    return LedgerError(text, key=key, status=rows[0].status if rows else "absent")


def _report(  # noqa: PLR0913 - the parts of one command
    screen: Screen,
    options: StoreOptions,
    going: Sequence[ShownEffect],
    removed: Sequence[ShownEffect],
    *,
    stayed: int,
    dry_run: bool,
) -> int:
    missed = 0 if dry_run else len(going) - len(removed)
    if options.as_json:
        counts = {"removed": len(removed), "kept": stayed, "changed": missed, "dry_run": dry_run}
        screen.json({**counts, "effects": [EFFECT.json(each) for each in (going if dry_run else removed)]})
    elif dry_run:
        screen.table(EFFECT.columns, going)
        screen.say(f"Would forget {_named(going)}.")
    elif removed:
        screen.say(f"Forgot {_named(removed)}; the same call runs again.")
    if stayed and not options.as_json:
        screen.note(
            f"{count_noun(stayed, 'effect')} stayed, being running, unknown or not applied: forgotten, they could "
            "happen twice."
        )
    if missed:
        screen.fault(f"{count_noun(missed, 'effect')} {_CHANGED}")
    return 1 if missed else 0


def _named(effects: Sequence[ShownEffect]) -> str:
    row = effects[0].row
    return row.key if len(effects) == 1 else f"{count_noun(len(effects), 'effect')} of {row.tool}"
