"""`make chaos`: kill workers at random over a store, and count what became of each call.

Exits with 1 if a promise was not kept: an effect happened twice or not at all, was recorded as failed though it had
happened, is not known to be done in the end, was not applied exactly once, or the session disagrees with the files or
the table. Before that, programs that do not want to end are started, and must end: see `chaos.programs`; calls in
sandboxes are killed: see `chaos.sandboxes`; connections to PostgreSQL are cut: see `chaos.outages`; what speaks MCP is
killed: see `chaos.mcp.kills`; so are graphs of LangGraph: see `chaos.langgraph.kills`; and programs in durable engines:
see `chaos.engines.kills`; workers of the command: see `chaos.workers.kills`; and undo: see `chaos.undo.kills`. The
refund desk is forked at random calls: see `chaos.forks`.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import get_args

from chaos import cancellations, forks, history, interrupts, outages, postgres, programs, sandboxes, service, table
from chaos.conductor import Conductor, Toll
from chaos.desk import NAMES, Policy
from chaos.engines import kills as engine_kills
from chaos.langgraph import kills as graph_kills
from chaos.mcp import kills as mcp_kills
from chaos.mcp.client import Setup
from chaos.troubles import BusySqlite, RestartedPostgres, Trouble
from chaos.undo import kills as undo_kills
from chaos.verdict import Verdict, judge, read_state
from chaos.worker import wait_for_threads, warm
from chaos.workers import kills as worker_kills
from chaos.world import Counts, World

_KILLS_TO_A_TROUBLE = 100
_LONGEST_REASON = 150
_MOST_REASONS = 12
_KIND_OF_REASON = re.compile(r"\S*\d\S*|/\S*")
"""What differs in reasons of one kind: names with numbers, and paths."""

_SECONDS_TO_FINISH = 120.0
_LONGEST_CASE_SECONDS = 1800.0
"""How long the lines of one way to interrupt a call may take."""

_ORDERS = 40
"""How many orders each thread pays and sells while connections are cut."""

_LEAST_WIDTH = 5
_COLUMNS = (
    *(
        "kills",
        "grouped",
        "calls",
        "keys",
        "done",
        "duplicates",
        "lost",
        "denied",
        "torn",
        "unknown",
        "resolved",
        "raised",
    ),
    *("overran", "late_accepted", "stale", "repeated", "applied", "misapplied"),
)


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for on the command line.

    Attributes:
        kills: how many workers to kill in each run.
        workers: how many there are at a time.
        agents: how many sessions each worker runs, of each run.
        store: `"sqlite"`, `"postgres"` or `"both"`.
        policy: `"unknown"`, `"retry"` or `"both"`.
        seed: where chance begins.
        minutes: how long a run may take at most.
        programs: how many rounds to play in which a program does not want to end.
        sandboxes: how many rounds to play in which a call in a sandbox is killed.
        lines: at every how many lines of a call it is interrupted; 0 for not at all.
        cancellations: how many calls to cancel at a random time, through each entry over each store.
        outages: how many rounds to play in which connections to PostgreSQL are cut.
        mcp: how many rounds to play in which a client, a proxy or a server of MCP is killed.
        langgraph: how many rounds to play in which a graph of LangGraph is killed.
        engines: how often to kill the programs of each kind that run in durable engines.
        queue: how many workers of the command to kill that carry out runs.
        undo: how many processes to kill that undo a session.
        forks: at how many calls to fork the days of the refund desk, over each store.
        only: the only option of these, or `"kills"`, whose part is played; empty for all.
    """

    kills: int
    workers: int
    agents: list[int]
    store: str
    policy: str
    seed: int
    minutes: float
    programs: int
    sandboxes: int
    lines: int
    cancellations: int
    outages: int
    mcp: int
    langgraph: int
    engines: int
    queue: int
    undo: int
    forks: int
    only: str


def main() -> int:
    """Run over each store, under each policy and with each number of agents; print a table; say if all was kept."""
    options = _parse()
    stores = ["sqlite", "postgres"] if options.store == "both" else [options.store]
    policies: list[Policy] = [policy for policy in get_args(Policy) if options.policy in {policy, "both"}]
    verdicts: dict[str, Verdict | None] = {}
    _say(f"seed {options.seed}")
    ends = [part(options) for name, part in _PARTS.items() if options.only in {"", name}]
    if options.only not in {"", "kills"}:
        return 0 if all(ends) else 1
    warm(len(NAMES))
    for store in stores:
        for policy in policies:
            for agents in options.agents:
                verdicts[f"{store} {policy} {agents}"] = _run(store, policy, agents, options)
    _say("")
    _say(_line("run", _COLUMNS))
    for run, verdict in verdicts.items():
        counts = ["-"] * len(_COLUMNS) if verdict is None else [getattr(verdict, column) for column in _COLUMNS]
        kept = verdict is not None and verdict.kept
        _say(_line(run, counts) + ("" if kept else "  BROKEN"))
    kept = all(verdict is not None and verdict.kept for verdict in verdicts.values())
    return 0 if all(ends) and kept else 1


def _end_programs(options: Options) -> bool:
    """Play the rounds in which a program does not want to end; whether all of them have ended in time."""
    longest = dict[str, float]()
    faults = list[str]()
    for played in programs.rounds(options.programs, random.Random(f"{options.seed} programs")):
        longest[played.kind] = max(longest.get(played.kind, 0.0), played.seconds)
        late = [f"it took {played.seconds:.1f} s"] if played.seconds > programs.SECONDS else []
        faults += [f"{played.kind}: {fault}" for fault in (*played.faults, *late)]
    return _tell_rounds("programs", longest, "the last process ended", faults)


def _kill_sandboxes(options: Options) -> bool:
    """Play the rounds in which a call in a sandbox is killed; whether each of them has left nothing."""
    longest = dict[str, float]()
    faults = list[str]()
    for played in sandboxes.rounds(options.sandboxes, random.Random(f"{options.seed} sandboxes")):
        longest[played.name] = max(longest.get(played.name, 0.0), played.seconds)
        faults += [f"{played.name}: {fault}" for fault in played.faults]
    return _tell_rounds("sandboxes", longest, "the next call was answered", faults)


def _interrupt_lines(options: Options) -> bool:
    """Interrupt a call at every line, over each kind of store; whether nothing was wrong."""
    if not options.lines:
        return True
    broken = False
    with _urls(options) as urls:
        for (name, url), case in product(urls.items(), interrupts.CASES):
            faulthandler.dump_traceback_later(_LONGEST_CASE_SECONDS, exit=True)  # a call that does not end is a fault
            count = interrupts.play(url, case, stride=options.lines)
            faulthandler.cancel_dump_traceback_later()
            broken = broken or bool(count.faults) or not count.raised
            _say(
                f"{name}, {case}: interrupted at {count.lines} lines, {count.raised} raised, "
                f"{count.handed_over} handed over, {len(count.faults)} faults"
            )
            for fault in count.faults:
                _say(f"    {fault}  BROKEN")
    return not broken


def _cancel_calls(options: Options) -> bool:
    """Cancel calls at random times, through each entry over each kind of store; whether nothing was wrong."""
    if not options.cancellations:
        return True
    broken = False
    with _urls(options) as urls:
        for (name, url), entry in product(urls.items(), cancellations.ENTRIES):
            dice = random.Random(f"{options.seed} {name} {entry}")
            count = cancellations.play(url, entry, calls=options.cancellations, dice=dice)
            broken = broken or bool(count.faults) or not count.cancelled
            _say(
                f"{name}, {entry}: {count.calls} calls, {count.cancelled} ended by their cancellation, "
                f"{count.happened} had happened by then, {len(count.faults)} faults"
            )
            for fault in count.faults:
                _say(f"    {fault}  BROKEN")
    return not broken


def _cut_connections(options: Options) -> bool:
    """Cut connections to PostgreSQL, and lose answers; whether all has happened once."""
    broken = False
    logging.disable()
    for number in range(options.outages if options.store in {"postgres", "both"} else 0):
        with postgres.running() as server:
            dice = random.Random(f"{options.seed} outages {number}")
            played = outages.play(server.url, orders=_ORDERS, dice=dice)
        broken = broken or bool(played.faults) or not played.commits
        _say(
            f"outages {number + 1}: {played.calls} calls, {played.cut} connections cut, {played.lost} answers lost, "
            f"{played.commits} of them to a COMMIT, {len(played.faults)} faults"
        )
        for fault in played.faults:
            _say(f"    {fault}  BROKEN")
    logging.disable(logging.NOTSET)
    return not broken


def _kill_mcp(options: Options) -> bool:
    """Kill clients, proxies and servers of MCP in the middle of calls; whether no payment was made twice or denied."""
    kinds = mcp_kills.kinds_of(options.mcp)
    broken = False
    for setup in get_args(Setup):
        own = [kind for kind in kinds if kind.setup == setup]
        if not own:
            continue
        count = mcp_kills.play(setup, own, random.Random(f"{options.seed} mcp {setup}"))
        broken = broken or bool(count.faults)
        answers = ", ".join(f"{number} {answer}" for answer, number in sorted(count.answers.items()))
        _say(
            f"mcp, {setup}: {count.rounds} rounds, {count.signals} kills, {count.under_way} calls under way; "
            f"{count.calls} calls: {answers}; {count.settled} settled later, {count.twice} paid twice, "
            f"{len(count.faults)} faults"
        )
        for fault in count.faults:
            _say(f"    {fault}  BROKEN")
    return not broken


def _kill_graphs(options: Options) -> bool:
    """Kill graphs of LangGraph in the middle of calls; whether no payment was made twice."""
    if not options.langgraph:
        return True
    dice = random.Random(f"{options.seed} langgraph")
    count = graph_kills.play(graph_kills.kinds_of(options.langgraph), dice)
    answers = ", ".join(f"{number} {answer}" for answer, number in sorted(count.answers.items()))
    _say(
        f"langgraph: {count.rounds} rounds, {count.kills} kills, {count.under_way} calls under way; "
        f"{count.calls} calls: {answers}; {count.twice} paid twice, {len(count.faults)} faults"
    )
    for fault in count.faults:
        _say(f"    {fault}  BROKEN")
    return not count.faults


def _kill_engines(options: Options) -> bool:
    """Kill programs in durable engines, plain ones and those with Handrail; whether the latter paid nothing twice."""
    broken = False
    stores = {"sqlite": {"SQLite"}, "postgres": {"PostgreSQL"}}.get(options.store, {"SQLite", "PostgreSQL"})
    for kind in engine_kills.KINDS:
        if not options.engines or kind.database not in stores:
            continue
        count = engine_kills.play(kind, options.engines, random.Random(f"{options.seed} engines {kind}"))
        broken = broken or bool(count.faults)
        _say(f"engines, {kind}: {count}")
        for fault in count.faults:
            _say(f"    {fault}  BROKEN")
    return not broken


def _kill_workers(options: Options) -> bool:
    """Kill workers of the command while they carry out runs; whether each run has ended as if nothing had happened."""
    broken = False
    for database in ("sqlite", "postgres") if options.queue else ():
        if options.store not in {database, "both"}:
            continue
        plan = worker_kills.Plan.for_kills(options.queue, database, options.workers)
        count = worker_kills.play(database, plan, random.Random(f"{options.seed} queue {database}"))
        broken = broken or bool(count.faults)
        for line in count.table:
            _say(f"queue, {database}: {line}")
        for fault in count.faults:
            _say(f"    {fault}  BROKEN")
    return not broken


def _kill_undo(options: Options) -> bool:
    """Kill processes that undo a session, until the undo is complete; whether nothing was undone twice or left out."""
    broken = False
    for database in ("sqlite", "postgres") if options.undo else ():
        if options.store not in {database, "both"}:
            continue
        count = undo_kills.play(database, options.undo, random.Random(f"{options.seed} undo {database}"))
        broken = broken or bool(count.faults)
        moments = count.kills["a moment"]
        _say(
            f"undo, {database}: {count.rounds} sessions, {count.kills.total()} kills, {moments} of them at a moment; "
            f"{count.calls} calls undone, {count.twice} twice, {count.left_out} left out, {len(count.faults)} faults"
        )
        for fault in count.faults:
            _say(f"    {fault}  BROKEN")
    return not broken


def _fork_days(options: Options) -> bool:
    """Fork days of the refund desk at random calls, over each kind of store; whether no refund was paid again."""
    broken = False
    with _urls(options) as urls, TemporaryDirectory(prefix="handrail-chaos-") as folder:
        for name, url in urls.items() if options.forks else ():
            dice = random.Random(f"{options.seed} forks {name}")
            count = forks.play(url, Path(folder), forks=options.forks, dice=dice)
            broken = broken or bool(count.faults)
            _say(f"forks, {name}: {count.forks}, {count.replayed} calls replayed, {len(count.faults)} faults")
            for fault in count.faults:
                _say(f"    {fault}  BROKEN")
    return not broken


_PARTS: Mapping[str, Callable[[Options], bool]] = {
    "programs": _end_programs,
    "sandboxes": _kill_sandboxes,
    "lines": _interrupt_lines,
    "cancellations": _cancel_calls,
    "outages": _cut_connections,
    "mcp": _kill_mcp,
    "langgraph": _kill_graphs,
    "engines": _kill_engines,
    "queue": _kill_workers,
    "undo": _kill_undo,
    "forks": _fork_days,
}
"""What is played before workers are killed over each store, by the option that says how much."""


@contextmanager
def _urls(options: Options) -> Generator[dict[str, str]]:
    """A URL for each kind of store; within the block nothing is logged: thousands of calls are interrupted."""
    logging.disable()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    try:
        with ExitStack() as held:
            folder = Path(held.enter_context(TemporaryDirectory()))
            urls = {"memory": "memory:", "sqlite": f"sqlite:///{folder / 'calls.db'}"}
            if options.store in {"postgres", "both"}:
                urls["postgres"] = held.enter_context(postgres.running()).url
            yield urls
    finally:
        logging.disable(logging.NOTSET)


def _tell_rounds(what: str, longest: Mapping[str, float], event: str, faults: Sequence[str]) -> bool:
    """Say how long rounds took at the latest, by what was killed, and what was wrong; whether nothing was."""
    for name, seconds in longest.items():
        _say(f"{what}, killed: {name}: {event} after {seconds:.2f} s at the latest")
    for fault in faults:
        _say(f"{what}, killed: {fault}  BROKEN")
    return not faults


def _run(store: str, policy: Policy, agents: int, options: Options) -> Verdict | None:
    """One run; `None` if it could not be brought to its end. What it leaves is kept if a promise was broken."""
    folder = Path(mkdtemp(prefix="chaos-"))

    def say(line: str) -> None:
        _say(f"{store} {policy} {agents}: {line}")

    with _place(folder, store) as (url, address, trouble):
        world = World(folder, url, address, policy, options.workers, agents, Counts(options.workers))
        dice = random.Random(f"{options.seed} {store} {policy} {agents}")
        conductor = Conductor(world, dice=dice, trouble=trouble, say=say)
        verdict = _play(conductor, world, options, say)
        _tell_toll(conductor.toll, world, say)
    if verdict is not None and verdict.kept:
        shutil.rmtree(folder)
    else:
        say(f"what is left is in {folder}")
    return verdict


def _play(conductor: Conductor, world: World, options: Options, say: Callable[[str], object]) -> Verdict | None:
    """Torment the workers, let them finish, and judge; `None` if there was not time enough, or something is broken."""
    begun = time.monotonic()
    troubles = max(2, options.kills // _KILLS_TO_A_TROUBLE)
    if not conductor.torment(options.kills, troubles=troubles, seconds=options.minutes * 60):
        say(f"only {conductor.toll.kills} were killed in {options.minutes:g} minutes")
        return None
    if conductor.toll.broken:
        return None
    until = max(kept.applied for kept in read_state(world).sessions.values())
    until += len(NAMES) - until % len(NAMES)
    if not conductor.finish(until, seconds=_SECONDS_TO_FINISH):
        say(f"not every session has come to its call {until} in {_SECONDS_TO_FINISH:g} s without a kill")
        return None
    say(f"every session has come to its call {until}, after {time.monotonic() - begun:.0f} s")
    for fault in table.report_faults(world.url):
        say(f"the database is damaged: {fault}")
        return None
    client = service.Client(world.service)
    kills, grouped = conductor.toll.kills, world.grouped.total()
    report = client.report()
    verdict = judge(read_state(world), report, kills=kills, grouped=grouped, until=until)
    (world.folder / "report.json").write_text(json.dumps(asdict(report)), encoding="utf-8")
    client.close()
    return verdict


@contextmanager
def _place(folder: Path, store: str) -> Generator[tuple[str, str, Trouble]]:
    """A new store and a new service, for one run: the URL, the address, and what happens to the store."""
    with ExitStack() as held:
        trouble: Trouble
        if store == "sqlite":
            path = str(folder / "desk.db")
            url, trouble = f"sqlite:///{path}", BusySqlite(path)
        else:
            server = held.enter_context(postgres.running())
            url, trouble = server.url, RestartedPostgres(server)
        table.create(url)
        history.create(url)
        wait_for_threads()
        yield url, held.enter_context(service.running()), trouble


def _tell_toll(toll: Toll, world: World, say: Callable[[str], object]) -> None:
    """Say what was done to the workers, and what they had to say."""
    say(
        f"{toll.moments} were killed at a moment, {toll.points.total()} at {len(toll.points)} named points; "
        f"{toll.stops} were stopped past their lease, {toll.starved} had a full disk, {toll.told} ended as told; "
        f"the store was in trouble {toll.troubles} times"
    )
    lines = world.told.read_text(encoding="utf-8").splitlines() if world.told.exists() else []
    reasons = dict[str, list[str]]()
    for line in lines:
        reasons.setdefault(_KIND_OF_REASON.sub("", line), []).append(line)
    kinds = sorted(reasons.values(), key=len, reverse=True)
    for why in kinds[:_MOST_REASONS]:
        say(f"{len(why):5} x {' '.join(why[0].split())[:_LONGEST_REASON]}")
    if len(kinds) > _MOST_REASONS:
        say(f"{sum(map(len, kinds[_MOST_REASONS:])):5} x something of {len(kinds) - _MOST_REASONS} other kinds")
    for broken in sorted(world.folder.glob("broken-*.txt")):
        say(f"BROKEN\n{broken.read_text(encoding='utf-8')}")


def _line(run: str, cells: Sequence[object]) -> str:
    """One line of the table."""
    widths = [max(len(column), _LEAST_WIDTH) + 2 for column in _COLUMNS]
    return f"{run:<18}" + "".join(f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _say(line: str) -> None:
    print(line, flush=True)


def _parse() -> Options:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=...", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="workers to kill in each run (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=4, help="workers at a time (default: %(default)s)")
    agents_help = "sessions of a worker: one through the synchronous entry, more as tasks of one loop (default: 1 50)"
    parser.add_argument("--agents", type=int, nargs="+", default=[1, 50], metavar="N", help=agents_help)
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both", help="default: %(default)s")
    parser.add_argument("--policy", choices=(*get_args(Policy), "both"), default="both", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="where chance begins; printed")
    parser.add_argument(
        "--programs",
        type=int,
        default=200,
        help="rounds in which a program does not want to end (default: %(default)s)",
    )
    parser.add_argument(
        "--sandboxes", type=int, default=50, help="rounds in which a call in a sandbox is killed (default: %(default)s)"
    )
    parser.add_argument(
        "--lines",
        type=int,
        default=1,
        metavar="N",
        help="interrupt a call at every Nth line that it executes; 0 for not at all (default: %(default)s)",
    )
    parser.add_argument(
        "--cancellations",
        type=int,
        default=3000,
        metavar="N",
        help="cancel N calls at a random time, through each entry over each store (default: %(default)s)",
    )
    outages_help = "rounds in which connections to PostgreSQL are cut (default: %(default)s)"
    parser.add_argument("--outages", type=int, default=10, metavar="N", help=outages_help)
    mcp_help = "rounds in which a client, a proxy or a server of MCP is killed (default: %(default)s)"
    parser.add_argument("--mcp", type=int, default=100, metavar="N", help=mcp_help)
    langgraph_help = "rounds in which a graph of LangGraph is killed (default: %(default)s)"
    parser.add_argument("--langgraph", type=int, default=100, metavar="N", help=langgraph_help)
    engines_help = "kills of each kind of program in a durable engine (default: %(default)s)"
    parser.add_argument("--engines", type=int, default=100, metavar="N", help=engines_help)
    queue_help = "workers of the command to kill while they carry out runs of a queue (default: %(default)s)"
    parser.add_argument("--queue", type=int, default=200, metavar="N", help=queue_help)
    undo_help = "processes to kill while they undo a session, over each store (default: %(default)s)"
    parser.add_argument("--undo", type=int, default=500, metavar="N", help=undo_help)
    forks_help = "forks of days of the refund desk over each store (default: %(default)s)"
    parser.add_argument("--forks", type=int, default=200, metavar="N", help=forks_help)
    only_help = "play the part of one option alone; default: all"
    parser.add_argument("--only", choices=("", *_PARTS, "kills"), default="", help=only_help)
    parser.add_argument("--minutes", type=float, default=10.0, help="the most a run may take (default: %(default)s)")
    return Options(**vars(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
