"""`handrail ledger reconcile --ask`: asks the reconcilers of an agent, or of a program, about unknown effects."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from pkgutil import resolve_name

from cyclopts import CycloptsError

from handrail.adapters.tool_executor import ToolExecutor
from handrail.cli.agents.commands import imports_unsearched, need_extra
from handrail.cli.agents.options import AGENT_SUFFIX, check_agent_path
from handrail.cli.ledger.show import ShownEffect, effect_json, find_effect, newest
from handrail.cli.options import StoreOptions
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Screen
from handrail.errors import SessionError
from handrail.runtime.ledger.effects import lease_expired
from handrail.session import Session
from handrail.store import EffectRow
from handrail.waiting import run_on_new_loop


def ask_reconcilers(name: str, key: str | None, partition: str | None, options: StoreOptions) -> int:
    """Ask about all unknown effects, or those of the session of `key`; returns the exit code.

    Raises:
        CycloptsError: `name` is neither an agent file nor `module:function`.
        HandrailError: the store, the agent or the program cannot be used.
    """
    with redirect_stdout(sys.stderr):
        settle = _named_settler(name)
    screen = Screen()
    with options.open(writing=True) as store:
        now = store.now()
        unknown = (row for row in store.rows() if row.status == "unknown" or lease_expired(row, now))
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
            screen.json(effect_json(ShownEffect(row, now)), lines=True)
        else:
            screen.say(_outcome(row))
    return DONE if all(row.status in {"done", "failed"} for row in standing) else FAILED


def _outcome(row: EffectRow) -> str:
    if row.status == "done":
        return f"{row.key} has happened."
    if row.status == "failed":
        return f"{row.key} has not happened, so the same call may run again."
    return f"{row.key} is still unknown. Find out, and record it with handrail ledger reconcile."


def _named_settler(name: str) -> Callable[[Session], object]:
    if name.endswith(AGENT_SUFFIX) or Path(name).is_file():
        need_extra()
        check_agent_path(Path(name))
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
