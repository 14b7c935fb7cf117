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
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

import pydantic_ai
from cyclopts import CycloptsError
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.models import Model

from handrail.agents.agent import LoadedAgent, load_agent
from handrail.agents.approval.decisions import Answer, Asker, GatedCall
from handrail.agents.approval.rules import ApprovalRules, read_rules
from handrail.agents.run.events import (
    CallEnded,
    CallStarted,
    QuestionAsked,
    QuestionDecided,
    RunEnded,
    RunEvent,
    RunStarted,
)
from handrail.agents.run.options import RunCommand, RunOptions, check_resumed, record_command
from handrail.agents.run.run import RunResult
from handrail.cli.agents.options import RunChoices
from handrail.cli.agents.progress import JsonProgress, TextProgress, format_problem, print_problems, problems_of
from handrail.cli.agents.questions import TerminalAsker
from handrail.cli.agents.settings import (
    FALLBACK_OPTION,
    NamedModel,
    check_played,
    check_stored,
    chosen_model,
    chosen_store,
    opened_model,
    opened_session,
    unset_empty_keys,
)
from handrail.cli.output_streams import OutputError
from handrail.cli.process_exit import DONE, FAILED, TRY_AGAIN, USAGE, WAITING, interruptible, wake_on_signals
from handrail.cli.screen import Screen, format_call, show_traceback
from handrail.clock import SYSTEM_CLOCK
from handrail.errors import (
    AgentError,
    ApprovalRulesError,
    CommitInDoubtError,
    DocumentError,
    HandrailError,
    PromptEvaluationError,
    RecordingError,
    ScriptError,
    StoreError,
)
from handrail.redaction import redacted
from handrail.serde.formatting import count_noun, enumerated
from handrail.session import Session
from handrail.session.conversation import ConversationPart
from handrail.threads import THREADS
from handrail.waiting import run_on_new_loop

_MOST_NAMED = 200


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready to start.

    Attributes:
        agent_file: the agent file, as it was typed.
        agent: the agent.
        input: its input; `None` to resume a session.
        model: the model of all agents, instead of those that the files name; `None` for theirs.
        fallback: the model that is asked where that of an agent fails; `None` for none.
        rules: the rules instead of the project's; `None` for the project's.
        store: the URL of the store; `None` for none.
        choices: the other options.
    """

    agent_file: Path
    agent: LoadedAgent
    input: str | None
    model: Model | None
    fallback: Model | None
    rules: ApprovalRules | None
    store: str | None
    choices: RunChoices

    @property
    def command(self) -> RunCommand:
        """How the run was typed."""
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
        )

    def resuming(self, session: Session, *, deciding: bool = False) -> list[str]:
        """The command that resumes the run, as words of a shell; with `deciding`, so that its questions are asked."""
        approve = "ask" if deciding else self.choices.approve
        return self.command.resuming(session.session_id, store=self.choices.store, approve=approve)

    def store_words(self, *words: str) -> list[str]:
        """A command on the store of the run, as words of a shell."""
        typed = self.choices.store
        kept = [] if typed is None else ["--store", redacted(typed)]
        return [shlex.quote(word) for word in (*words, *kept)]


def execute_run(agent_file: Path, given: str | None, choices: RunChoices) -> int:
    """Run an agent, and return the exit code.

    Raises:
        CycloptsError: the command line is invalid, or names something that does not exist.
        HandrailError: the store or the session cannot be used, or the run failed.
    """
    pydantic_ai.BANNER_ENABLED = False
    choices.check()
    unset_empty_keys()
    screen = Screen()
    # Standard output is only for the answer: what modules, factories and tools print goes to standard error.
    with redirect_stdout(sys.stderr):
        try:
            run = _prepared(agent_file, given, choices)
        except (AgentError, DocumentError, ScriptError) as error:
            print_problems(screen, problems_of(error))
            # Nothing has run, so this is a fault of the command line or of the files that it names.
            return USAGE
        # Random, and 128 bits, so that two runs never share a session by accident.
        session_id = choices.session or uuid.uuid4().hex
        try:
            with opened_session(run.store, session_id) as session:
                return _run_reported(run, session, screen)
        except SystemExit as failed:  # raised, so that what closing raises does not replace it
            return failed.code if isinstance(failed.code, int) else FAILED


def _prepared(agent_file: Path, given: str | None, choices: RunChoices) -> PreparedRun:
    # A process without standard input has None there.
    said = read_prompt(given, cast("TextIO | None", sys.stdin), reading=choices.stdin)
    if said is None and choices.session is None:
        raise no_input(agent_file)
    agent = load_agent(agent_file)
    config = agent.project.config
    named = chosen_model(choices.model, agent.file.model, config.model, os.environ)
    model = opened_model(named)  # also if it is opened again later: errors are reported before anything runs
    fallback = choices.fallback_model
    store = chosen_store(choices.store, config.store, agent.project.folder, os.environ)
    check_stored(store, choices)
    return PreparedRun(
        agent_file=agent_file,
        agent=agent,
        input=said,
        model=model if named is not None and named.typed else None,
        fallback=None if fallback is None else opened_model(NamedModel(fallback, FALLBACK_OPTION)),
        rules=None if choices.rules is None else read_rules(choices.rules),
        store=store,
        choices=choices,
    )


def _run_reported(run: PreparedRun, session: Session | None, screen: Screen) -> int:
    teller = JsonProgress(screen, clock=SYSTEM_CLOCK) if run.choices.as_json else TextProgress(screen)
    if session is not None and run.choices.session is None:
        screen.remark(f"Session {session.session_id} is stored in {redacted(run.store or '')}.")
    listener = _Listener(teller)

    def stopping(how_long: str) -> None:
        # The thread has no caller that could handle a closed pipe.
        with suppress(OutputError):
            if listener.waited_for:
                screen.remark(f"Interrupted; waiting for {listener.waited_for}{how_long}")

    with interruptible(listener.interrupted, stopping) as signals:
        try:
            result = run_on_new_loop(_listened(run, session, screen, listener))
        except BaseException as error:
            is_interrupt = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)  # only a signal cancels it all
            # A signal may come because the terminal is gone, to which nothing can be written any more.
            if is_interrupt or (error is listener.failure and signals):
                _end_interrupted(run, session, screen, listener)
                raise KeyboardInterrupt from error
            # Raised by the listener, so the output cannot be written; `application.run` handles it.
            if error is listener.failure or not isinstance(error, Exception | SystemExit):
                raise
            code = _failure(error, run, screen, listener)
            may_have_happened = listener.has_events and _print_left(run, session, screen, listener)
            raise SystemExit(WAITING if may_have_happened and code == FAILED else code) from error
    # Only a stored run can be resumed; without a session a waiting run ends here with its output.
    if result.status == "waiting" and session is not None:
        _print_waiting(run, session, screen, result)
        _print_unknown(run, session, screen, listener)
        return WAITING
    teller.answer(result.output)
    # After the answer, because a script that was not played to its end does not make the answer wrong.
    check_played(run.model)
    return WAITING if _print_unknown(run, session, screen, listener) else DONE


def _print_waiting(run: PreparedRun, session: Session, screen: Screen, result: RunResult) -> None:
    """Print the calls that wait for approval, and how the run is resumed."""
    calls = count_noun(len(result.waiting), "call")
    screen.remark(f"{calls} of the run wait{'s' if len(result.waiting) == 1 else ''} for approval:")
    for call in result.waiting:
        screen.remark(f"  {'/'.join(call.path)}: {format_call(call.tool, call.arguments)}")
    screen.remark("Decide and resume with:")
    screen.command(run.resuming(session, deciding=True), aside=True)


def _end_interrupted(run: PreparedRun, session: Session | None, screen: Screen, listener: _Listener) -> None:
    """End a run that was interrupted: print how it is resumed, and wait for its functions."""
    with suppress(OutputError):
        _print_left(run, session, screen, listener)
    if listener.calls_interrupted:
        # A function cannot be stopped. It is not cut off in the middle; a third Ctrl-C does that.
        THREADS.join()


def _print_left(run: PreparedRun, session: Session | None, screen: Screen, listener: _Listener) -> bool:
    """Print how a run that has not ended is resumed, and its effects that may have happened; whether there are any."""
    with suppress(StoreError):  # the store is gone, which is not why the run has not ended
        if session is not None and len(session[ConversationPart]):
            screen.remark(f"Session {session.session_id} holds the run up to here. Resume it with:")
            screen.command(run.resuming(session), aside=True)
        return _print_unknown(run, session, screen, listener)
    return False


def _print_unknown(run: PreparedRun, session: Session | None, screen: Screen, listener: _Listener) -> bool:
    """Print the effects that may have happened, and how they are settled; returns whether there are any."""
    unknown = listener.unknown
    if session is not None and (store := session.store) is not None:  # as they are now, also after an interruption
        unknown = {
            each: {call.key: call.tool for call in store.open_claims(each) if call.state == "unknown" and call.key}
            for each in listener.agents
        }
    tools = [tool for effects in unknown.values() for tool in effects.values()]
    if not tools:
        return False
    named = enumerated(tuple(dict.fromkeys(tools)), limit=_MOST_NAMED)
    screen.remark(f"{count_noun(len(tools), 'effect')} of the run may have happened: {named}.")
    if session is None:
        return True
    screen.remark("Ask the tools, or without --ask record what you have found out; ledger show KEY has the arguments:")
    for session_id, effects in unknown.items():
        # The agents that it has called have sessions of their own; one that was made by a run has no file.
        called = run.agent.project.agents.get(listener.agents.get(session_id, ""))
        file = run.agent_file if session_id == session.session_id else None if called is None else called.path
        asked = () if file is None else ("--ask", str(file))
        for key in effects:
            screen.command(run.store_words("handrail", "ledger", "reconcile", key, *asked), aside=True)
    return True


def _failure(error: Exception | SystemExit, run: PreparedRun, screen: Screen, listener: _Listener) -> int:
    if isinstance(error, AgentError):
        print_problems(screen, problems_of(error))
        # Rules are checked after the first event, but still before any call.
        nothing_ran = not listener.has_events or isinstance(error, ApprovalRulesError)
        return USAGE if nothing_ran else FAILED
    # An error of a provider, factory or toolset of the program is reported with the place where it was raised.
    show_traceback(screen, error)
    known = isinstance(error, HandrailError | AgentRunError | UserError)
    text = error if known else format_problem(error, run.agent.project.folder)
    screen.fault(f"{run.agent.name}: the run failed: {text}")
    # The phase of a connection that was lost while a reply arrived.
    of_stream = "stream" in str(error).lower() or getattr(error.__cause__, "phase", "") == "read"
    if of_stream and isinstance(error, PromptEvaluationError) and not run.choices.no_stream:
        screen.remark("If the server of the model does not stream replies to their end, run it with --no-stream.")
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code & 0xFF or FAILED  # a program that ends a run has not answered
    return TRY_AGAIN if isinstance(error, RecordingError | CommitInDoubtError) else FAILED


async def _listened(run: PreparedRun, session: Session | None, screen: Screen, listener: _Listener) -> RunResult:
    options = RunOptions(
        session=session,
        model=run.model,
        mode="ask" if run.choices.approve == "later" else run.choices.approve,
        asker=_asker(run.choices, screen, can_wait=session is not None),
        rules=run.rules,
        listener=listener,
        root=run.choices.root,
        max_depth=run.choices.max_depth,
        request_limit=run.choices.request_limit,
        stream=not run.choices.no_stream,
        retries=run.choices.retries,
        fallback_model=run.fallback,
    )
    if session is not None:
        if run.input is None:
            # Before the command is recorded, which is what the run itself is compared with.
            check_resumed(session, options)
        record_command(session, run.command)
    task = asyncio.ensure_future(run.agent.run_async(run.input, options))
    loop = asyncio.get_running_loop()
    wake_on_signals(loop)
    # The event is delivered in a call of the run itself, so the run is cancelled, and not interrupted by an exception.
    listener.stop = task.cancel
    # A signal handler runs between two instructions of any code, where only `call_soon_threadsafe` may touch the loop.
    listener.interrupt = lambda: loop.call_soon_threadsafe(task.cancel)
    try:
        return await task
    finally:
        # From here on there is no task to cancel; Ctrl-C ends the clean-up.
        listener.interrupt = _interrupt_at_once
        # The cancellation was only the means; the reason is that the output cannot be written.
        if listener.failure is not None:
            raise listener.failure


def _asker(choices: RunChoices, screen: Screen, *, can_wait: bool) -> Asker | None:
    if choices.approve == "later":
        return _leave_open
    return TerminalAsker(screen, can_wait=can_wait) if screen.can_ask else None


def _leave_open(_call: GatedCall) -> Answer:
    return Answer("later")


def _interrupt_at_once() -> None:
    raise KeyboardInterrupt


class _Listener:
    """Passes events to the reporter; stops the run when the output pipe is closed.

    Attributes:
        has_events: whether there was any event.
        failure: why reporting failed, if it did.
        agents: the agents that were started, by session.
        calls: the tools of the calls that run.
        unknown: the effects that may have happened, by session; see `RunEnded`.
        asks: whether a person is asked at this moment.
        calls_interrupted: whether calls were running when the run was interrupted.
        waited_for: what was running then, in words; empty for a question, which ends at once.
        interrupt: what the first Ctrl-C does.
        stop: stops the run.
    """

    def __init__(self, teller: Callable[[RunEvent], None]) -> None:
        self._teller = teller
        self.has_events = False
        self.failure: OutputError | None = None
        self.calls: dict[tuple[tuple[str, ...], str | None, str], str] = {}
        self.agents: dict[str, str] = {}
        self.unknown: dict[str, Mapping[str, str]] = {}
        self.asks = False
        self.calls_interrupted = False
        self.waited_for = ""
        self.stop: Callable[[], object] = lambda: None
        self.interrupt: Callable[[], object] = _interrupt_at_once

    def interrupted(self) -> None:
        if not self.asks:
            self.calls_interrupted = bool(self.calls)
            tools = tuple(dict.fromkeys(self.calls.values()))
            self.waited_for = enumerated(tools, limit=_MOST_NAMED) or "the model"
        self.interrupt()

    def __call__(self, event: RunEvent) -> None:
        self.has_events = True
        if isinstance(event, CallStarted):
            self.calls[event.path, event.reply, event.call_id] = event.tool
        elif isinstance(event, CallEnded):
            self.calls.pop((event.path, event.reply, event.call_id), None)
        elif isinstance(event, RunStarted):
            self.agents[event.session_id] = event.path[-1]
        elif isinstance(event, RunEnded):
            self.unknown[event.session_id] = event.unknown
        elif isinstance(event, QuestionAsked | QuestionDecided):
            self.asks = isinstance(event, QuestionAsked)
        # The run needs some time to stop, and continues to report until then.
        if self.failure is not None:
            return
        try:
            self._teller(event)
        except OutputError as error:
            self.failure = error
            self.stop()


def read_prompt(given: str | None, stream: TextIO | None, *, reading: bool = False) -> str | None:
    """The input of the agent; `None` if there is none.

    Args:
        given: what was typed.
        stream: standard input, which is read if nothing is given and it is not a terminal; `None` if there is none.
        reading: whether to read it in any case.

    Raises:
        CycloptsError: the input is empty, or not UTF-8 text.
    """
    if given is not None:
        if reading:
            raise CycloptsError(msg="INPUT is given, and `-` reads it from standard input; leave one of them out")
        if not given.strip():
            raise CycloptsError(msg="INPUT is empty; write what the agent is to do")
        return given
    if not reading and (stream is None or stream.isatty()):
        return None
    if stream is None:
        raise CycloptsError(msg="standard input is closed, so INPUT cannot be read from it")
    try:
        text = stream.read()
        # Text that was decoded with `surrogateescape` cannot be encoded, and would fail later in the store.
        text.encode()
    except UnicodeError as error:
        raise CycloptsError(msg=f"standard input is not UTF-8 text ({error})") from error
    if text.strip():
        return text
    if not reading:
        return None
    raise CycloptsError(msg="standard input is empty; write there what the agent is to do")


def no_input(agent_file: object) -> CycloptsError:
    """The error for a run without input."""
    return CycloptsError(
        msg=f'what is the agent to do? Write handrail run {agent_file} "INPUT", or hand INPUT over on standard input; '
        "without INPUT, only a session that is not finished is resumed: --session ID"
    )
