"""Runs `handrail run`: prepares agent, model and session, and runs the agent.

The input is typed on the command line, or read from standard input.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TextIO, cast

import pydantic_ai
from cyclopts import CycloptsError
from pydantic_ai.exceptions import AgentRunError, UserError

from handrail.agents import QuestionAsked, QuestionDecided, RunEnded, RunEvent, RunStarted
from handrail.agents.agent import LoadedAgent, load_agent
from handrail.agents.approval.decisions import Asker, answer_later
from handrail.agents.approval.rules import read_rules
from handrail.agents.run.interface import RunCommand, RunOptions, check_resumed, record_command
from handrail.agents.run.run import RunResult
from handrail.cli.agents import RunChoices
from handrail.cli.agents.progress import (
    CANNOT_ASK,
    JsonProgress,
    TerminalAsker,
    TextProgress,
    flatten_problems,
    format_problem,
    print_problems,
)
from handrail.cli.agents.settings import (
    FALLBACK_OPTION,
    NamedModel,
    check_played,
    check_stored,
    chosen_model,
    chosen_store,
    opened_session,
    resolve_model,
    unset_empty_keys,
)
from handrail.cli.process_exit import (
    DONE,
    FAILED,
    TRY_AGAIN,
    USAGE,
    WAITING,
    OutputError,
    interruptible,
    wake_on_signals,
)
from handrail.cli.screen import Screen, show_traceback
from handrail.clock import SYSTEM_CLOCK
from handrail.errors import (
    AgentError,
    ApprovalRulesError,
    CommitInDoubtError,
    DocumentError,
    HandrailError,
    RecordingError,
    ScriptError,
    StoreError,
)
from handrail.readable import format_call
from handrail.redaction import redacted
from handrail.serde.formatting import count_noun, enumerated
from handrail.session import Session
from handrail.session.conversation import ConversationPart
from handrail.threads import THREADS
from handrail.waiting import run_on_new_loop

_MOST_NAMED = 200


class PreparedRun(NamedTuple):
    """A run that is ready to start."""

    agent_file: Path
    agent: LoadedAgent
    input: str | None
    options: RunOptions
    store: str | None
    choices: RunChoices

    @property
    def command(self) -> RunCommand:
        """The command of the run, as its session records it."""
        choices = self.choices
        return RunCommand(
            agent_file=str(self.agent_file),
            folder=str(Path.cwd()),
            model=choices.model,
            rules=None if choices.rules is None else str(choices.rules),
            root=None if choices.root is None else str(choices.root),
            max_depth=choices.max_depth,
            request_limit=choices.request_limit,
            stream=not choices.no_stream,
            retries=choices.retries,
            fallback_model=choices.fallback_model,
            mode="ask" if choices.approve == "later" else choices.approve,
        )


def set_up_process() -> None:
    """Has PydanticAI print nothing, and takes empty keys out of the environment."""
    pydantic_ai.BANNER_ENABLED = False
    unset_empty_keys()


def execute_run(
    agent_file: Path,
    prompt: str | None,
    choices: RunChoices,
    *,
    rehearse: Callable[[PreparedRun, Screen], int] | None = None,
) -> int:
    """Runs an agent, or rehearses the run, and returns the exit code."""
    set_up_process()
    screen = Screen()
    # Standard output is only for the answer: what modules, factories and tools print goes to standard error.
    with redirect_stdout(sys.stderr):
        try:
            run = prepare_run(agent_file, prompt, choices)
        except (AgentError, DocumentError, ScriptError) as error:
            print_problems(screen, flatten_problems(error))
            # Nothing has run, so this is a fault of the command line or of the files that it names.
            return USAGE
        if rehearse is not None:
            return rehearse(run, screen)
        try:
            # Random, and 128 bits, so that two runs never share a session by accident.
            with opened_session(run.store, choices.session or uuid.uuid4().hex) as session:
                return _ReportedRun(run, session, screen).execute()
        except SystemExit as failed:  # raised, so that what closing raises does not replace it
            return failed.code if isinstance(failed.code, int) else FAILED


def prepare_run(agent_file: Path, prompt: str | None, choices: RunChoices) -> PreparedRun:
    """A run as its command says; the input is read from standard input if it is not given.

    Raises:
        CycloptsError: the options do not fit.
        AgentError: the agent cannot be loaded. A `DocumentError` or `ScriptError` for a file that it names.
    """
    # A process without standard input has None there.
    text = read_prompt(prompt, cast("TextIO | None", sys.stdin))
    if text is None and choices.session is None:
        raise CycloptsError(
            msg=f'what is the agent to do? Write handrail run {agent_file} "INPUT", or hand INPUT over on standard '
            "input; without INPUT, only a session that is not finished is resumed: --session ID"
        )
    agent = load_agent(agent_file)
    config = agent.project.config
    model_name = chosen_model(choices.model, agent.file.model, config.model, os.environ)
    model = resolve_model(model_name)  # also if it is opened again later: errors are reported before anything runs
    fallback = choices.fallback_model
    store = chosen_store(choices.store, config.store, agent.project.folder, os.environ)
    check_stored(store, choices)
    options = RunOptions(
        model=model if model_name is not None and model_name.typed else None,
        mode="ask" if choices.approve == "later" else choices.approve,
        rules=None if choices.rules is None else read_rules(choices.rules),
        root=choices.root,
        max_depth=choices.max_depth,
        request_limit=choices.request_limit,
        stream=not choices.no_stream,
        retries=choices.retries,
        fallback_model=None if fallback is None else resolve_model(NamedModel(fallback, FALLBACK_OPTION)),
    )
    return PreparedRun(agent_file, agent, text, options, store, choices)


def _interrupt_at_once() -> None:
    raise KeyboardInterrupt


class _ReportedRun:
    def __init__(self, run: PreparedRun, session: Session | None, screen: Screen) -> None:
        self._run, self._session, self._screen = run, session, screen
        self._report = JsonProgress(screen, clock=SYSTEM_CLOCK) if run.choices.as_json else TextProgress(screen)
        self._has_events = self._has_explained = False
        self._failure: OutputError | None = None  # why reporting failed, if it did
        self._agents: dict[str, str] = {}  # those that were started, by session
        self._unknown: dict[str, Mapping[str, str]] = {}  # the effects that may have happened, by session
        self._asks = False  # whether a person is asked at this moment
        self._is_waited_for = False  # not if it was interrupted at a question, which ends at once
        self._stop: Callable[[], object] = lambda: None
        self._interrupt: Callable[[], object] = _interrupt_at_once

    def execute(self) -> int:
        """Runs the agent, and returns the exit code."""
        run, session, screen = self._run, self._session, self._screen
        if session is not None and run.choices.session is None:
            screen.remark(f"Session {session.session_id} is stored in {redacted(run.store or '')}.")
        with interruptible(self._interrupted, self._say_stopping) as signals:
            try:
                result = run_on_new_loop(self._result())
            except BaseException as error:
                is_interrupt = isinstance(
                    error, asyncio.CancelledError | KeyboardInterrupt
                )  # only a signal cancels all
                # A signal may come because the terminal is gone, to which nothing can be written any more.
                if is_interrupt or (error is self._failure and signals):
                    self._end_interrupted()
                    raise KeyboardInterrupt from error
                # Raised by the listener, so the output cannot be written; `run_guarded` handles it.
                if error is self._failure or not isinstance(error, Exception | SystemExit):
                    raise
                code = self._print_failure(error)
                may_have_happened = self._has_events and self._print_left()
                raise SystemExit(WAITING if may_have_happened and code == FAILED else code) from error
        # Only a stored run can be resumed; without a session a waiting run ends here with its output.
        if result.status == "waiting" and session is not None:
            self._print_waiting(session, result)
            self._print_unknown()
            return WAITING
        self._report.answer(result.output)
        # After the answer, because a script that was not played to its end does not make the answer wrong.
        check_played(run.options.model)
        return WAITING if self._print_unknown() else DONE

    async def _result(self) -> RunResult:
        run, session = self._run, self._session
        asker: Asker | None = (
            TerminalAsker(self._screen, can_wait=session is not None) if self._screen.can_ask else None
        )
        asker = answer_later if run.choices.approve == "later" else asker
        options = replace(run.options, session=session, asker=asker, listener=self)
        if session is not None:
            if run.input is None:
                # Before the command is recorded, which is what the run itself is compared with.
                check_resumed(session, options)
            record_command(session, run.command)
        task = asyncio.ensure_future(run.agent.run_async(run.input, options))
        loop = asyncio.get_running_loop()
        wake_on_signals(loop)
        # The event is delivered in a call of the run itself, so the run is cancelled, and not interrupted.
        self._stop = task.cancel
        # A signal handler runs between two instructions of any code: only `call_soon_threadsafe` may touch the loop.
        self._interrupt = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return await task
        finally:
            # From here on there is no task to cancel; Ctrl-C ends the clean-up.
            self._interrupt = _interrupt_at_once
            # The cancellation was only the means; the reason is that the output cannot be written.
            if self._failure is not None:
                raise self._failure

    # ------------------------------------------------------------------------------------------- events and signals

    def __call__(self, event: RunEvent) -> None:
        self._has_events = True
        if isinstance(event, RunStarted):
            self._agents[event.session_id] = event.path[-1]
        elif isinstance(event, RunEnded):
            self._unknown[event.session_id] = event.unknown
        elif isinstance(event, QuestionAsked | QuestionDecided):
            self._asks = isinstance(event, QuestionAsked)
        # The run needs some time to stop, and continues to report until then.
        if self._failure is not None:
            return
        try:
            self._report(event)
            if isinstance(event, QuestionDecided) and event.decision.by == "nobody" and not self._has_explained:
                self._has_explained = True
                self._screen.remark(CANNOT_ASK)
        except OutputError as error:
            self._failure = error
            self._stop()

    def _interrupted(self) -> None:
        self._is_waited_for = not self._asks
        self._interrupt()

    def _say_stopping(self, how_long: str) -> None:
        # The thread has no caller that could handle a closed pipe.
        with suppress(OutputError):
            if self._is_waited_for:
                self._screen.remark(f"Interrupted; waiting for what runs{how_long}")

    # ---------------------------------------------------------------------------------------------- the end of a run

    def _print_waiting(self, session: Session, result: RunResult) -> None:
        self._screen.remark(f"Waiting for approval: {count_noun(len(result.waiting), 'call')} of the run.")
        for call in result.waiting:
            self._screen.remark(f"  {'/'.join(call.path)}: {format_call(call.tool, call.arguments)}")
        self._screen.remark("Decide and resume with:")
        # With `ask`, so that its questions are asked.
        self._print_resuming(session, "ask")

    def _print_resuming(self, session: Session, approve: str) -> None:
        words = self._run.command.resuming(session.session_id, store=self._run.choices.store, approve=approve)
        self._screen.command(words, aside=True)

    def _end_interrupted(self) -> None:
        with suppress(OutputError):
            self._print_left()
        # A function cannot be stopped. It is not cut off in the middle; a third Ctrl-C does that.
        THREADS.join()

    def _print_left(self) -> bool:
        session = self._session
        with suppress(StoreError):  # the store is gone, which is not why the run has not ended
            if session is not None and len(session[ConversationPart]):
                self._screen.remark(f"Session {session.session_id} holds the run up to here. Resume it with:")
                self._print_resuming(session, self._run.choices.approve)
            return self._print_unknown()
        return False

    def _print_unknown(self) -> bool:
        session, screen, unknown = self._session, self._screen, self._unknown
        if session is not None and (store := session.store) is not None:  # as they are now, also after an interruption
            unknown = {
                own_id: {
                    call.key: call.tool for call in store.open_claims(own_id) if call.state == "unknown" and call.key
                }
                for own_id in self._agents
            }
        tools = [tool for effects in unknown.values() for tool in effects.values()]
        if not tools:
            return False
        tools_text = enumerated(tuple(dict.fromkeys(tools)), limit=_MOST_NAMED)
        screen.remark(f"{count_noun(len(tools), 'effect')} of the run may have happened: {tools_text}.")
        if session is None:
            return True
        screen.remark(
            "Ask the tools, or without --ask record what you have found out; ledger show KEY has the arguments:"
        )
        typed = self._run.choices.store
        store_words = [] if typed is None else ["--store", redacted(typed)]
        for session_id, effects in unknown.items():
            # The agents that it has called have sessions of their own; one that was made by a run has no file.
            agent_entry = self._run.agent.project.agents.get(self._agents.get(session_id, ""))
            path = self._run.agent_file if session_id == session.session_id else agent_entry and agent_entry.path
            ask_words = ["--ask", str(path)] if path else []
            for key in effects:
                words = ("handrail", "ledger", "reconcile", key, *ask_words, *store_words)
                screen.command([shlex.quote(word) for word in words], aside=True)
        return True

    def _print_failure(self, error: Exception | SystemExit) -> int:
        run, screen = self._run, self._screen
        if isinstance(error, AgentError):
            print_problems(screen, flatten_problems(error))
            # Rules are checked after the first event, but still before any call.
            nothing_ran = not self._has_events or isinstance(error, ApprovalRulesError)
            return USAGE if nothing_ran else FAILED
        # An error of a provider, factory or toolset of the program is reported with the place where it was raised.
        show_traceback(screen, error)
        is_known = isinstance(error, HandrailError | AgentRunError | UserError)
        text = error if is_known else format_problem(error, run.agent.project.folder)
        screen.fault(f"{run.agent.name}: the run failed: {text}")
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            return error.code & 0xFF or FAILED  # a program that ends a run has not answered
        return TRY_AGAIN if isinstance(error, RecordingError | CommitInDoubtError) else FAILED


def read_prompt(argument: str | None, stream: TextIO | None) -> str | None:
    """The input of the agent: `argument`, or the `stream`, unless that is a terminal."""
    text = argument
    try:
        if argument is None and stream is not None and not stream.isatty():
            text = stream.read()
        # What was decoded with `surrogateescape` cannot be encoded, and would fail later in the store.
        (text or "").encode()
    except UnicodeError as error:
        raise CycloptsError(msg=f"INPUT is not UTF-8 text ({error})") from error
    if text is not None and text.strip():
        return text
    if argument is not None:
        raise CycloptsError(msg="INPUT is empty; write what the agent is to do")
    return None
