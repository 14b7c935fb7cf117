"""`handrail ledger`: shows effects, records what a person has found out about them, and removes them."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

from cyclopts import CycloptsError, Parameter

from handrail.cli.options import (
    MORE_THAN_ZERO,
    DryRun,
    Entity,
    Limit,
    StoreOptions,
    Yes,
    check_can_ask,
)
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Field, Screen
from handrail.errors import SessionError
from handrail.operations import effects
from handrail.operations.effects import EffectState, EffectView, with_agents
from handrail.process import process_in_words
from handrail.prompt import BinaryPart
from handrail.prompt.signature import DAY
from handrail.prompt.tool_result import ContentPart
from handrail.runtime import EffectLedger
from handrail.runtime.ledger.effects import Finding, lacks_value, lease_expired
from handrail.serde.formatting import count_noun
from handrail.session import Session
from handrail.store import EffectRow
from handrail.store.protocol import prove_owner

# -------------------------------------------------------------------------------------------------------------- effects


_STYLES = {"running": "yellow", "lapsed": "bold yellow", "failed": "red", "unknown": "bold red", "done": "green"}
_NOT_RECORDED = "not recorded"

Partition = Annotated[
    str | None,
    Parameter(
        metavar="SESSION",
        help='The session that the key belongs to; "" for one that all share. Needed where several have the same key.',
    ),
]
"""Whose key is meant."""


def _part_json(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, BinaryPart):
        return {"media_type": part.media_type, "size": len(part.data)}
    return {"text": part.text}


def _owner_json(effect: EffectView) -> dict[str, Any]:
    owner = effect.row.owner
    return {**owner._asdict(), "in_words": owner.in_words}


def _arguments(effect: EffectView) -> Any:  # noqa: ANN401 - any value of JSON
    return _NOT_RECORDED if effect.row.arguments is None else effect.stored_arguments.arguments


EFFECT: Entity[EffectView] = Entity(
    "effects",
    ("key", "tool", "status", "lease / expiry", "arguments"),
    (
        Field("key", lambda effect: effect.row.key),
        Field("partition", lambda effect: effect.row.partition),
        Field("tool", lambda effect: effect.row.tool),
        Field("status", lambda effect: effect.state, key="state", styles=_STYLES),
        Field("", lambda effect: effect.row.status, key="status"),
        Field("lease / expiry", lambda effect: effect.term, key=""),
        Field("note", lambda effect: effect.row.note),
        Field("session", lambda effect: effect.row.owner.session_id, key=""),
        Field("agent", lambda effect: effect.agent or None),
        Field("owner", _owner_json, lambda effect: str(effect.row.owner)),
        Field("process", lambda effect: process_in_words(effect.row.owner.process), key=""),
        Field("created", lambda effect: effect.row.created_at, key="created_at"),
        Field("arguments", lambda effect: effect.stored_arguments.arguments, _arguments),
        Field("model wrote", lambda effect: effect.stored_arguments.words, key="written"),
        Field("hash", lambda effect: effect.row.params_hash, key="params_hash"),
        Field("fence", lambda effect: effect.row.fence),
        Field("effect", lambda effect: effect.row.effect_id, key="effect_id"),
        Field("lease until", lambda effect: effect.row.lease_until, key="lease_until"),
        Field("completed", lambda effect: effect.row.completed_at, key="completed_at"),
        Field("applied", lambda effect: effect.row.applied_at, key="applied_at"),
        Field("", lambda effect: effect.row.expires_at, key="expires_at"),
        Field("message", lambda effect: effect.row.message),
        Field("value", lambda effect: effect.result[0], lambda effect: effect.value),
        # Then the value is null, or has the mask in place of secrets.
        Field("", lambda effect: effect.row.status == "done" and lacks_value(effect.row), key="value_unavailable"),
        Field("", lambda effect: effect.row.exclude_value_from_context, key="exclude_value_from_context"),
        Field(
            "parts",
            lambda effect: list(map(_part_json, effect.result[1])),
            lambda effect: "\n".join(map(str, effect.result[1])),
        ),
    ),
)
"""An effect. `owner` is the call that claimed it last, and its process; `arguments` is null if they were not recorded,
and a string if they were cut; `written` is what the model wrote, and null if that is the arguments."""


def list_effects(  # noqa: PLR0913 - the options of the command
    *,
    status: Annotated[tuple[EffectState, ...], Parameter(metavar="STATE")] = (),
    tool: Annotated[str | None, Parameter(metavar="NAME")] = None,
    session: Annotated[str | None, Parameter(metavar="SESSION")] = None,
    unapplied: bool = False,
    limit: Limit = None,
    options: StoreOptions = StoreOptions(),
) -> None:
    """List the effects, the newest first. Filters are combined with AND.

    Example: `handrail ledger list --status unknown`

    Args:
        status: Only those in this state. May be repeated. `lapsed` is running with an expired lease; it may have
            happened, so `unknown` lists it, too. `expired` is done or failed so long ago that it counts as absent.
        tool: Only effects of this tool.
        session: Only its own keys, and the shared ones that it was the last to claim.
        unapplied: Only those that have happened, and whose results no session has applied: their calls are open.
        limit: How many.
        options: The store and the output format.
    """
    states = {*status, *(("lapsed",) if "unknown" in status else ())}
    with options.open() as store:
        now = store.now()
        rows = (
            row
            for row in (prove_owner(store, entry, now) for entry in store.rows())
            if (not states or EffectView(row, now).state in states)
            and tool in {None, row.tool}
            and session in {None, row.partition, row.owner.session_id}
            and (not unapplied or effects.is_unapplied(store, row, now))
        )
        EFFECT.print_list(with_agents(store, effects.newest(rows)), limit, options)


def show_effect(key: str, /, *, partition: Partition = None, options: StoreOptions = StoreOptions()) -> None:
    """Show all that is known about one effect.

    Example: `handrail ledger show session:refund:cfb3066e1951`

    Args:
        key: The key of the effect, as `ledger list` shows it.
        partition: Whose key is meant.
        options: The store and the output format.
    """
    with options.open() as store:
        # The time is read after the row, so that a state is never computed with a time from before it was written.
        (effect,) = with_agents(store, [effects.find_effect(store, key, partition)])
    EFFECT.print_one(effect, options)


# -------------------------------------------------------------------------------------------------------------- changes


def _check_json(_type: object, text: str | None) -> None:
    if text is not None:
        effects.result_value(text)


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
            The call of an effect without a declared key (`call:...`) never runs again: its session has its record.
        why: If it has not: how that is known. With --applied: who has applied it, and how. For people.
    """

    happened: Annotated[bool | None, Parameter(negative="--not-happened")] = None
    applied: bool = False
    message: Annotated[str | None, Parameter(metavar="TEXT")] = None
    value: Annotated[str | None, Parameter(metavar="JSON", validator=_check_json)] = None
    ttl: Annotated[timedelta | Literal["never"], MORE_THAN_ZERO, Parameter(show_choices=False)] = DAY
    why: Annotated[str | None, Parameter(metavar="TEXT")] = None

    def check(self) -> None:
        """Checks that the options are consistent."""
        if self.applied == (self.happened is not None):
            raise CycloptsError(msg="has it happened? Give one of --happened, --not-happened and --applied")
        if (self.why if self.happened else self.message or self.value) is not None:
            msg = "--message and --value go with --happened; --why goes with --not-happened and --applied"
            raise CycloptsError(msg=msg)

    def of(self, row: EffectRow) -> Finding:
        """The finding, in the form of the ledger."""
        kind: effects.FindingKind = "applied" if self.applied else "happened" if self.happened else "not happened"
        value = None if self.value is None else effects.result_value(self.value)
        return effects.make_finding(row, kind, message=self.message or "", value=value, why=self.why or "")


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
        ask: Ask the tools' own `reconcile` instead: of an agent file, of a file of MCP servers, as of `handrail proxy`,
            or of MODULE:FUNCTION, which takes a Session and returns its ToolExecutor.
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
    return _ask_reconcilers(ask, key, partition, options)


def _record_finding(key: str, partition: str | None, finding: EffectFinding, options: StoreOptions) -> int:
    with options.open(writing=True) as store:
        row = effects.find_effect(store, key, partition)
        ttl = None if finding.ttl == "never" else finding.ttl
        (effect,) = with_agents(store, [effects.settle_effect(store, row, finding.of(row), ttl=ttl)])
    if options.as_json:
        Screen().json(EFFECT.json(effect))
    elif finding.applied:
        Screen().say(f"Recorded that the result of {key} has been applied by hand.")
    elif finding.happened:
        Screen().say(f"Recorded that {key} has happened: {effect.row.message}")
    else:
        Screen().say(f"Recorded that {key} has not happened, so the same call may run again.")
    return DONE


# ---------------------------------------------------------------------------------------------------------- the tools


def _ask_reconcilers(name: str, key: str | None, partition: str | None, options: StoreOptions) -> int:
    from handrail.cli.undo import find_program, settle  # noqa: PLC0415 - the other commands need none of it

    screen = Screen()
    with options.open(writing=True) as store:
        now = store.now()
        unknown = (row for row in store.rows() if row.status == "unknown" or lease_expired(row, now))
        rows = effects.newest(unknown) if key is None else [effects.find_effect(store, key, partition)]
        for session_id in dict.fromkeys(row.owner.session_id for row in rows):
            try:
                with redirect_stdout(sys.stderr):
                    enter = find_program(store, session_id, name, option="--ask")
                    with Session.open(store, session_id, create=False) as session:
                        enter(session, settle)
            except SessionError as error:  # it is open elsewhere, or only in memory
                screen.remark(f"session {session_id}: its tools are not asked: {error}")
        settled_rows = [store.get(row.partition, row.key) or row for row in rows]
    for row in settled_rows:
        if options.as_json:
            screen.json(EFFECT.json(EffectView(row, now)), lines=True)
        else:
            unknown_yet = "is still unknown. Find out, and record it with handrail ledger reconcile"
            screen.say(f"{row.key} {_SETTLED.get(row.status, unknown_yet)}.")
    return DONE if all(row.status in _SETTLED for row in settled_rows) else FAILED


_SETTLED = {"done": "has happened", "failed": "has not happened, so the same call may run again"}


# ------------------------------------------------------------------------------------------------------------- removal


def prune_effects(*, yes: Yes = False, dry_run: DryRun = False, options: StoreOptions = StoreOptions()) -> int:
    """Remove the effects that have expired. They count as absent already; this only frees space.

    They are removed in many short transactions, so that others can write in between.

    Example: `handrail ledger prune --dry-run`
    """
    screen = Screen()
    check_can_ask(screen, "removes expired effects", yes=yes or dry_run)
    with options.open(writing=not dry_run) as store:
        expired = store.expired(store.now())
        words = count_noun(expired, "expired effect")
        if expired and not (yes or dry_run) and not screen.confirm(f"Remove {words}?"):
            screen.remark("Nothing was removed.")
            return FAILED
        count = 0 if dry_run else EffectLedger(store).prune_expired()
    if options.as_json:
        screen.json({"removed": count, "would_remove": expired if dry_run else 0, "dry_run": dry_run})
    else:
        screen.say(f"Would remove {words}." if dry_run else f"Removed {count_noun(count, 'expired effect')}.")
    return DONE
