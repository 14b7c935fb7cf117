"""`make bench`: what a call costs, as ratios from one run of one process. `--strict` exits with 1 if a bound is missed.

A few bounds are figures, in milliseconds, megabytes or calls a second; those depend on the machine. Of the
time, the column "processor" has what this process used of its processors, "collector" what the garbage collector took.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import get_args

from benchmarks import (
    agents,
    calls,
    checks,
    commands,
    compare,
    concurrency,
    connections,
    desk,
    disk,
    durable,
    functions,
    graphs,
    imports,
    known,
    last_turns,
    list_pages,
    mcp_servers,
    own_paths,
    pages,
    programs,
    provider_loops,
    prune,
    python_calls,
    replays,
    sandboxes,
    shadow,
    stalls,
    texts,
    throughput,
    traces,
    transcripts,
    undo_calls,
    undoing,
    walks,
    workers,
)
from benchmarks.timing import (
    Bound,
    Figure,
    Limit,
    Ratio,
    Sense,
    Timing,
    count,
    figures,
    formatted,
    measure,
    ratios,
    timed,
)


@dataclass(frozen=True, slots=True)
class Group:
    """Cases that are measured beside each other.

    Attributes:
        floor: the case that the others are told in multiples of.
        bounds: what is promised, as ratios.
        cases: makes the cases, for the time of a block.
        rounds: how often each case is timed, unless the command line says otherwise.
        calls: how many calls a timing takes, unless the command line says otherwise.
        limits: what is promised in figures, and what is only shown.
        take: which of the rounds counts.
    """

    floor: str
    bounds: Sequence[Bound]
    cases: Callable[[], AbstractContextManager[dict[str, Callable[[], object]]]]
    rounds: int
    calls: int
    limits: Sequence[Limit] = ()
    take: Callable[[Sequence[float]], float] = statistics.median


GROUPS = {
    "calls": Group("floor", calls.BOUNDS, lambda: nullcontext(calls.cases()), 30, 500),
    "traces": Group(traces.FLOOR, traces.BOUNDS, lambda: nullcontext(traces.cases()), 30, 5),
    "memory": Group(calls.KEPT, (), lambda: nullcontext(calls.memory_cases()), 1, 1, calls.LIMITS),
    "imports": Group(imports.BARE, imports.BOUNDS, imports.cases, 15, 1, imports.LIMITS),
    "functions": Group(functions.BARE, (), lambda: nullcontext(functions.cases()), 3, 1, functions.LIMITS),
    "concurrency": Group(concurrency.ALONE, concurrency.BOUNDS, concurrency.cases, 7, 1, concurrency.LIMITS),
    "stores": Group("idempotent call in memory", durable.BOUNDS, durable.cases, 15, 100),
    "checks": Group(checks.STATE_IN_MEMORY, checks.BOUNDS, checks.cases, 30, 1, take=min),
    "throughput": Group(throughput.ONE, throughput.BOUNDS, throughput.cases, 9, 1, throughput.LIMITS),
    "stalls": Group(stalls.IDLE, (), stalls.cases, 1, 1, stalls.LIMITS),
    "desk": Group(desk.DESK, (), desk.cases, 1, 1, desk.LIMITS),
    "connections": Group(connections.ALONE, (), connections.cases, 3, 1, connections.LIMITS),
    "disk": Group(f"write and roll back, {disk.SMALL} files", disk.BOUNDS, disk.cases, 15, 20),
    "known": Group(known.OPENED, (), known.stored_cases, 25, 1, known.LIMITS),
    "texts": Group(texts.OPENED_SMALL, (), texts.cases, 25, 1, texts.LIMITS),
    "last turns": Group(last_turns.SMALL_SQLITE, (), last_turns.cases, 25, 1, last_turns.LIMITS),
    "transcripts": Group(transcripts.LOOP, (), transcripts.cases, 5, 1, transcripts.LIMITS),
    "pages": Group(pages.EXPORTED, (), pages.cases, 5, 1, pages.LIMITS),
    "list pages": Group(list_pages.LIST, (), list_pages.cases, 9, 1, list_pages.LIMITS),
    "prune": Group(prune.NOTHING, (), prune.cases, 15, 1, prune.LIMITS),
    "undo calls": Group(undo_calls.EXTERNAL, undo_calls.BOUNDS, undo_calls.cases, 25, 20, undo_calls.LIMITS),
    "writes": Group(known.BARE, known.BOUNDS, known.write_cases, 40, 5),
    "walks": Group(walks.BARE, walks.BOUNDS, walks.cases, 15, 1),
    "own paths": Group(own_paths.PYDANTIC_AI, own_paths.BOUNDS, own_paths.cases, 30, 1, take=min),
    "provider loops": Group(provider_loops.LIMITS[0].case, (), provider_loops.cases, 1, 1, provider_loops.LIMITS),
    "agents": Group(agents.BARE, agents.BOUNDS, agents.cases, 7, 1),
    "shadow": Group("bare git add and write-tree", shadow.BOUNDS, shadow.cases, 15, 1),
    "undo": Group(undoing.WRITE, undoing.BOUNDS, undoing.cases, 15, 1, undoing.LIMITS),
    "replay": Group(replays.REPLAY, (), replays.cases, 9, 1, replays.LIMITS),
    "programs": Group(programs.BARE, programs.BOUNDS, programs.cases, 25, 1),
    "sandbox": Group(sandboxes.BWRAP, sandboxes.BOUNDS, sandboxes.cases, 15, 1),
    "python": Group(python_calls.BARE, (), python_calls.cases, 25, 10, python_calls.LIMITS),
    "mcp": Group(mcp_servers.BARE_STDIO, mcp_servers.BOUNDS, mcp_servers.cases, 9, 1, mcp_servers.LIMITS, take=min),
    "langgraph": Group(graphs.BY_HAND, (), graphs.cases, 25, 20, graphs.LIMITS),
    "workers": Group(workers.STARTED, (), workers.cases, 25, 1, workers.LIMITS),
    "commands": Group(commands.BARE, (), lambda: nullcontext(commands.cases()), 5, 1, commands.LIMITS),
}
"""What is measured, by the names that `--only` takes."""

WHEN_NAMED = frozenset({"commands"})
"""The groups that are measured only if `--only` names them: they run the whole suite, which takes many minutes."""

IDENTITY = "identity"
"""The group that compares this checkout with the commit `benchmarks.compare.REFERENCE`."""


def main() -> int:
    """Measure, print, and say whether the bounds hold."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument(
        "--only", choices=(*GROUPS, IDENTITY), action="append", help="measure this group; may be given again"
    )
    parser.add_argument("--rounds", type=count, help="how often each case is timed (default: the group's)")
    parser.add_argument("--calls", type=count, help="how many calls a timing takes (default: the group's)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a bound is missed")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="what to print")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, compare.end_in_order)
    report: dict[str, object] = {}
    met = True
    for name in options.only or (*(name for name in GROUPS if name not in WHEN_NAMED), IDENTITY):
        print(f"measuring {name}", file=sys.stderr, flush=True)
        if name == IDENTITY:
            compared = _compared(options.rounds or 25, show=options.format == "table")
            met = met and all(row.met for row in compared)
            report[name] = {
                "reference": compare.REFERENCE,
                "rows": [asdict(row) | {"met": row.met} for row in compared],
            }
            continue
        group = GROUPS[name]
        with group.cases() as cases:
            to_time = timed(cases, group.limits)
            rounds, each = options.rounds or group.rounds, options.calls or group.calls
            timings = measure(to_time, rounds=rounds, calls=each, take=group.take)
            limits = figures(cases, timings, group.limits)
        found = ratios(timings, group.bounds)
        met = met and all(ratio.met for ratio in found) and all(figure.met for figure in limits)
        report[name] = {
            "floor": group.floor,
            "microseconds": {name: timing.time for name, timing in timings.items()},
            "processor": {name: timing.processor for name, timing in timings.items()},
            "collector": {name: timing.collector for name, timing in timings.items()},
            "ratios": [_bound_as_json(ratio) for ratio in found],
            "limits": [_limit_as_json(figure) for figure in limits],
        }
        if options.format == "table":
            _print_tables(group.floor, timings, found, limits)
    if options.format == "json":
        print(json.dumps(report, indent=2))
    return 0 if met or not options.strict else 1


def _compared(rounds: int, *, show: bool) -> list[compare.Compared]:
    """The costs beside those of the reference; none in a clone that does not have it."""
    if not compare.is_known(compare.REFERENCE):
        print(f"not measured: this clone has no commit {compare.REFERENCE}", file=sys.stderr)
        return []
    if show:
        compare.print_head(compare.REFERENCE)
    rows: list[compare.Compared] = []
    for row in compare.compare(compare.REFERENCE, rounds=rounds):
        if show:
            compare.print_row(row)
        rows.append(row)
    return rows


def _print_tables(floor: str, timings: dict[str, Timing], found: list[Ratio], limits: list[Figure]) -> None:
    if timings:
        print(_row("case", "us a call", "x floor", "processor", "collector"))
    for name, timing in timings.items():
        multiple = timing.time / timings[floor].time
        print(_row(name, *map(formatted, (timing.time, multiple, timing.processor, timing.collector))))
    for sense in get_args(Sense):
        rows = [*_ratio_rows(found, sense), *_figure_rows(limits, sense)]
        if rows:
            print("\n" + _row("bound", sense, "measured", "collector"))
            print("\n".join(rows))
    print(flush=True)


def _ratio_rows(found: Iterable[Ratio], sense: Sense) -> Iterator[str]:
    for ratio in found:
        bound = ratio.bound
        if bound.sense == sense:
            yield _row(bound.label, formatted(bound.factor), formatted(ratio.measured), "", _verdict(met=ratio.met))


def _figure_rows(limits: Iterable[Figure], sense: Sense) -> Iterator[str]:
    for figure in limits:
        limit = figure.limit
        if limit.sense == sense:
            wanted = "-" if limit.amount is None else formatted(limit.amount, limit.unit)
            collector = "" if figure.collector is None else formatted(figure.collector)
            verdict = "" if limit.amount is None else _verdict(met=figure.met)
            yield _row(limit.label, wanted, formatted(figure.measured, limit.unit), collector, verdict)


def _verdict(*, met: bool) -> str:
    return "holds" if met else "MISSED"


def _row(label: str, *columns: str) -> str:
    """A row of a table that fits in 120 columns: a long label has lines of its own above."""
    *above, last = textwrap.wrap(label, 64, subsequent_indent="  ")
    return "\n".join([*above, f"{last:<64}" + "".join(f"{column:>11}" for column in columns)]).rstrip()


def _bound_as_json(ratio: Ratio) -> Mapping[str, object]:
    bound = ratio.bound
    found = {"label": bound.label, "measured": ratio.measured, "met": ratio.met}
    sides = {"case": bound.case, "floor": bound.floor, "clock": bound.clock}
    return sides | {bound.sense.replace(" ", "_"): bound.factor} | found


def _limit_as_json(figure: Figure) -> Mapping[str, object]:
    limit = figure.limit
    found = {"label": limit.label, "measured": figure.measured, "collector": figure.collector, "met": figure.met}
    return {"case": limit.case, limit.sense.replace(" ", "_"): limit.amount, "unit": limit.unit} | found


if __name__ == "__main__":
    sys.exit(main())
