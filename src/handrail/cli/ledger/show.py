"""`handrail ledger`: what effects a ledger knows of. What changes it is in `handrail.cli.ledger.changes`."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from handrail.cli.ledger import described
from handrail.cli.ledger.beside import Shown, found_beside, is_possible_duplicate
from handrail.cli.options import AS_SET, StoreOptions
from handrail.cli.screen import Column, Screen
from handrail.cli.sessions import Limit, page
from handrail.errors import LedgerError
from handrail.store import EffectRow, Store

_COLUMNS = (
    Column("key"),
    Column("partition", spare=4),
    Column("tool", spare=2),
    Column("status", styles=described.CELL_STYLES),
    Column("fence", right=True, spare=7),
    Column("lease / expiry"),
    Column("owner", spare=6),
    Column("agent", spare=3),
    Column("created (UTC)", spare=5),
    Column("arguments", cut=True, spare=1),
)

Key = Annotated[str, Parameter(metavar="KEY", help="The key of the effect, as `ledger list` shows it.")]
"""Which effect."""

Partition = Annotated[
    str | None,
    Parameter(
        metavar="SESSION",
        help='The session that the key belongs to; "" for one that all share. Needed where several have the same key.',
    ),
]
"""Whose key is meant."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which effects to list.

    Attributes:
        status: their states; empty for all.
        tool: their tool, if it matters.
        session: the session that they belong to, if it matters.
        possible_duplicate: whether only those that may have happened twice.
    """

    status: Annotated[
        tuple[described.State, ...],
        Parameter(
            metavar="STATE",
            help="Only those in this state. May be repeated. `lapsed` is running with a lease that has passed, "
            "`expired` is done or failed so long ago that it counts as absent.",
        ),
    ] = ()
    tool: Annotated[str | None, Parameter(metavar="NAME", help="Only effects of this tool.")] = None
    session: Annotated[
        str | None,
        Parameter(metavar="SESSION", help="Only its own keys, and the shared ones that it was the last to claim."),
    ] = None

    possible_duplicate: Annotated[
        bool,
        Parameter(
            negative="",
            help="Only those that may have happened twice: a former owner says that the effect is done, and another "
            "has started it since, or may start it.",
        ),
    ] = False

    def fits(self, store: Store, row: EffectRow, now: datetime) -> bool:
        """Whether a row is among them."""
        return (
            (not self.status or described.state(row, now) in self.status)
            and self.tool in {None, row.tool}
            and self.session in {None, row.partition, row.owner.session_id}
            and not (self.possible_duplicate and not is_possible_duplicate(store, row))
        )


def list_effects(
    *,
    wanted: Wanted = Wanted(),
    limit: Limit = None,
    options: StoreOptions = AS_SET,
) -> int:
    """List the effects, the newest first."""
    size = page(limit, options)
    screen = Screen()
    with options.open() as store:
        now = store.now()
        found = (row for row in store.rows() if wanted.fits(store, row, now))
        rows = newest(found, None if size is None else size + 1)
        shown = found_beside(store, rows[:size])
    if options.as_json:
        for row, beside in shown:
            screen.json(described.effect_json(row, now, beside), lines=True)
        return 0
    if not rows:
        screen.remark(f"No effect{'s' if wanted == Wanted() else ' is as asked for'} in {store.url}.")
        return 0
    print_effects(screen, shown, now)
    if len(rows) > len(rows[:size]):
        screen.remark(f"These are the newest {len(rows) - 1}; --limit shows more.")
    return 0


def show_effect(
    key: Key,
    /,
    *,
    partition: Partition = None,
    options: StoreOptions = AS_SET,
) -> int:
    """Show all that is known of one effect."""
    screen = Screen()
    with options.open() as store:
        row = found_effect(store, key, partition)
        ((_, beside),) = found_beside(store, [row])
        now = store.now()
    if options.as_json:
        screen.json(described.effect_json(row, now, beside))
    else:
        screen.record(described.effect_fields(row, now, beside))
    return 0


def print_effects(screen: Screen, shown: Iterable[Shown], now: datetime) -> None:
    """Print effects as a table."""
    screen.table(_COLUMNS, [described.effect_cells(row, now, beside) for row, beside in shown])


def newest(rows: Iterable[EffectRow], limit: int | None) -> list[EffectRow]:
    """The newest rows first; at most `limit` of them, without keeping the others."""
    if limit is None:
        return sorted(rows, key=_age, reverse=True)
    return heapq.nlargest(limit, rows, key=_age)


def found_effect(store: Store, key: str, partition: str | None) -> EffectRow:
    """The row of a key; without a partition, of the only one that has it.

    Raises:
        LedgerError: there is none, or several partitions have the key.
    """
    if partition is not None:
        row = store.get(partition, key)
        found = [] if row is None else [row]
    else:
        found = [row for row in store.rows() if row.key == key]
    if len(found) == 1:
        return found[0]
    if not found:
        where = "" if partition is None else f" in the partition {partition!r}"
        raise LedgerError(
            f"{store.url} knows of no effect {key}{where}; handrail ledger list shows all", key=key, status="absent"
        )
    partitions = ", ".join(sorted(row.partition or '""' for row in found))
    raise LedgerError(
        f"{len(found)} sessions have an effect {key}; say which with --partition: {partitions}",
        key=key,
        status="ambiguous",
    )


def _age(row: EffectRow) -> datetime:
    return row.created_at
