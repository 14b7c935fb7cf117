"""`handrail ledger reconcile --ask`: asks the reconcilers of an agent, or of a program, about unknown effects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import FunctionType

from handrail.adapters.tool_executor import ToolExecutor
from handrail.cli.agents.commands import imports_unsearched, need_extra
from handrail.cli.agents.options import AGENT_SUFFIX, check_agent_path
from handrail.cli.ledger.show import effect_json, found_effect, newest
from handrail.cli.options import StoreOptions
from handrail.cli.overrides.named_template import imported_attribute
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Screen
from handrail.errors import PromptValidationError, SessionLockedError
from handrail.runtime.ledger.states import lease_expired
from handrail.session import Session
from handrail.store import EffectRow, Store
from handrail.waiting import run_on_new_loop

Settle = Callable[[Session], object]
"""Settles the open calls of a session."""

_WAIT = timedelta(seconds=1)


def ask_reconcilers(name: str, key: str | None, partition: str | None, options: StoreOptions) -> int:
    """Ask about one effect, or all that are unknown, and say what each has come to; returns the exit code.

    Args:
        name: an agent file, or `module:attribute` of a function that makes the executor of a session.
        key: the key of the effect; `None` for all.
        partition: its partition; `None` for the only one that has the key.
        options: the store.

    Raises:
        CycloptsError: there is no such file, module or attribute.
        HandrailError: the store, the agent or the program cannot be used.
    """
    settle, screen = _named_settler(name), Screen()
    with options.open(writing=True) as store:
        now = store.now()
        unknown = (row for row in store.rows() if row.status == "unknown" or lease_expired(row, now))
        rows = newest(unknown, None) if key is None else [found_effect(store, key, partition)]
        for session_id in dict.fromkeys(row.owner.session_id for row in rows):
            _settle_session(store, session_id, settle, screen)
        standing = [store.get(row.partition, row.key) or row for row in rows]
        for row in standing:
            if options.as_json:
                screen.json(effect_json(row, now), lines=True)
            else:
                screen.say(_outcome(row))
    if not rows and not options.as_json:
        screen.note("No effect is unknown.")
    return DONE if all(row.status in {"done", "failed"} for row in standing) else FAILED


def _settle_session(store: Store, session_id: str, settle: Settle, screen: Screen) -> None:
    # An effect of a session in memory is in the ledger alone.
    if store.find(session_id) is None:
        screen.remark(f"The session {session_id!r} is not in the store, so its effects are not asked about.")
        return
    try:
        with Session.open(store, session_id, wait=_WAIT) as session:
            settle(session)
    except SessionLockedError:
        screen.remark(f"Session {session_id} is in use by another process, so its effects are not asked about.")


def _outcome(row: EffectRow) -> str:
    if row.status == "done":
        return f"{row.key} has happened: {row.message}"
    if row.status == "failed":
        return f"{row.key} has not happened, so the same call may run again."
    return f"{row.key} is still {row.status}; find out, and record it with handrail ledger reconcile {row.key}"


def _named_settler(name: str) -> Settle:
    if name.endswith(AGENT_SUFFIX) or Path(name).is_file():
        need_extra()
        check_agent_path(Path(name))
        with imports_unsearched():
            from handrail.agents import RunOptions, load_agent  # noqa: PLC0415 - needs the extra, which is there
        agent = load_agent(Path(name))
        return lambda session: run_on_new_loop(agent.settle_open_async(RunOptions(session=session)))
    made = imported_attribute(name, "a program", FunctionType)

    def settle(session: Session) -> None:
        executor: object = made(session) if callable(made) else made
        if not isinstance(executor, ToolExecutor):
            raise PromptValidationError(f"{name} must be a function that takes a Session and returns its ToolExecutor.")
        executor.settle_open()

    return settle
