"""A LangGraph node in the place of `ToolNode`: the calls of a message go through the pipeline.

    node = HandrailNode([pay, note], store=store)
    graph.add_node("tools", node)
    app = graph.compile(checkpointer=checkpointer)
    app.invoke({"messages": [...]}, {"configurable": {"thread_id": "chat-17"}}, durability="sync")

LangGraph executes a node again from its first line: after a kill, an error, an interrupt, a retry, and from an older
checkpoint. Each time the identity of a call is equal, so that a call that has ended is answered from its record:

| | is |
|---|---|
| session | the id of the thread; in a subgraph `THREAD/NODE`, with the name of the node that is the subgraph |
| reply | the id of the model's message |
| call | its id in the message |

Ids of tasks and checkpoints are in none of them: they are others in a fork. The session is open while the node runs;
nodes of this process that run at the same time share it, and another process is refused.

Questions about calls are put to the caller of the graph by one `interrupt`, when all other calls of the message have
ended. An answer names its question by an id that is made of the call, its arguments, and what is asked when, so that it
holds for these alone. It is recorded in the session, as an answer by `handrail approvals` is, and the calls are made
again. LangGraph gives all earlier answers again whenever it executes the node; the ids of these are not open any more.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("langgraph") is None:
    raise ImportError(
        "handrail.adapters.langgraph needs LangGraph, which is not installed: pip install 'handrail[langgraph]'",
        name="langgraph",
    )

import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Unpack

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.types import interrupt

from handrail.adapters.loop import asynchronous_entries, read_ahead, tool_description
from handrail.adapters.settlement import PendingAnswers, settle_before_run
from handrail.adapters.tool_executor import Answers, ToolExecutor
from handrail.errors import InvalidArgumentError
from handrail.prompt import Approval, ApprovalRequest, Approver, Prompt, Tool
from handrail.prompt.prompt import prompt_over
from handrail.prompt.tool_result import BinaryPart, ContentPart
from handrail.redaction import redacted
from handrail.resources import ResourceRegistry
from handrail.runtime import ToolCall, ToolInvoked
from handrail.runtime.approval import calls_that_wait
from handrail.runtime.execution import ASYNC, BLOCKING, run_to_completion
from handrail.runtime.ledger.records import read_arguments
from handrail.runtime.long_results import result_reader
from handrail.serde import digest
from handrail.serde.json_schema import is_object
from handrail.session import Session
from handrail.session.calls import CallRef, checked_reply, distinct_call
from handrail.session.open_calls import GivenAnswer, PostponedCall
from handrail.session.session import OpenOptions
from handrail.store import MemoryStore, Store
from handrail.waiting import synchronous_entry

__all__ = ["HandrailNode", "ThreadPrompt"]

# Keys of `configurable` that LangGraph sets for each node. If it renames one, external tools are refused.
_CHECKPOINTER: Final = "__pregel_checkpointer"
_DURABILITY: Final = "__pregel_durability"

_OWN_BLOCKS: Final = frozenset({"image", "audio", "video"})  # the kinds of files that LangChain has a block for
_refusal: Final = partial(InvalidArgumentError, function="HandrailNode")
_ANSWERS: Final = "a mapping from ids of questions to True, False or {'approved': False, 'reason': 'Too dear.'}"


class ThreadPrompt(NamedTuple):
    """The prompt of a thread as the next request shows it; `tools` are as `bind_tools` of a chat model takes them."""

    text: str
    tools: list[dict[str, Any]]


@asynchronous_entries
class HandrailNode(Runnable[Any, Any]):
    """A node that answers the calls of the newest `AIMessage` of the state, in their order.

    It returns a `ToolMessage` for each call: `status` is `"error"` for a failed one, files are content blocks, and
    `artifact` names the session and the call. Calls whose arguments are not JSON are answered, too.

    If calls wait, it interrupts the graph with `{"questions": [...], "waits": [...], "faults": [...]}`:

    - a question has `"id"`, `"call"`, `"tool"`, `"arguments"` without secrets, `"effect"`, `"asks"`, the texts of the
      policies, and `"reason"`, why the approver leaves it open. `Command(resume={id: True, ...})` answers it with
      `True`, `False`, or `{"approved": False, "reason": "Too dear."}`; those without an answer are asked again.
    - what else is waited for has `"call"`, `"tool"` and `"reason"`: a handler has raised `CallPostponed`. Any resume
      makes the call again.
    - `"faults"` say which answers of the last resume were not used, and why.

    An answer that a person has recorded in the store counts as well; then resume by `invoke(None, config)`.

    Attributes:
        tools: the tools of the prompt before any section is opened, and the one that reads a result that was cut; as
            `bind_tools` of a chat model takes them.
    """

    def __init__(  # noqa: PLR0913 - what `ToolExecutor` takes, and the session
        self,
        tools: Iterable[Tool[Any, Any]] | None = None,
        *,
        prompt: Prompt[Any] | None = None,
        store: Store,
        resources: ResourceRegistry | Mapping[type[Any], object] | None = None,
        approver: Approver | None = None,
        messages_key: str = "messages",
        on_open: Callable[[Session], object] | None = None,
        **session: Unpack[OpenOptions],
    ) -> None:
        """Declares the node. The program closes the store, when no graph runs any more.

        Args:
            tools: the tools, in place of a prompt.
            prompt: the bound prompt.
            store: has the sessions, one for each thread.
            resources: as of `ToolExecutor`.
            approver: asked before the graph is interrupted; a question that it leaves open interrupts the graph.
            messages_key: where the state has its messages.
            on_open: registers reducers and subscribers in each session that is opened.
            **session: further arguments of `Session.open`.

        Raises:
            InvalidArgumentError: `store` is not a store, or there are both tools and a prompt, or neither.
            DeveloperMistake: as of `ToolExecutor`.
        """
        if not hasattr(store, "acquire"):
            raise _refusal(argument="store", value=store, expected="a store: handrail.store.open('sqlite:///desk.db')")
        self._prompt: Prompt[Any] = prompt_over("HandrailNode", tools, prompt, resources)
        self._approver = approver
        self._key = messages_key
        self._store, self._options, self._on_open = store, session, on_open
        template = self._prompt.template
        can_settle = any(tool.apply or tool.reconcile for tool, _ in template.placed_tools())
        self._may_settle = can_settle or any(placed.section.live for placed in template.placed_sections())
        # Mistakes show when the graph is built, not in its first run.
        with MemoryStore() as probe_store, probe_store.session("probe") as probe:
            executor = ToolExecutor(prompt=self._prompt, session=probe, approver=approver)
            reader = result_reader(executor.environment.reader_name)
            self.tools: list[dict[str, Any]] = [*map(_function, (*executor.tools, reader))]

    @synchronous_entry
    def invoke(self, input: object, config: RunnableConfig | None = None, **_: object) -> dict[str, Any]:
        """Answers the calls of a state; returns what to add to it.

        Raises:
            GraphInterrupt: calls wait; all others have ended.
            InvalidArgumentError: the state has no message of the model with an id, the configuration no thread; or
                there are external tools, and the run has not `durability="sync"`. Nothing has run.
            SessionLockedError: another process has the session open.
            BaseException: as of `ToolExecutor.answer`; a developer's mistake when the other calls have ended.
        """
        calls, reply = self._read_calls(input)
        with self._open(config, for_calls=True) as executor:
            if self._may_settle:
                run_to_completion(settle_before_run(executor.environment, BLOCKING))
            questions = _Questions(executor.environment.session)
            answers = executor.answer(calls, reply=reply)
            while isinstance(answers, PendingAnswers):
                questions.take(interrupt(questions.ask(answers)))
                answers = executor.answer(calls, reply=reply)
        return {self._key: _messages(executor.environment.session.session_id, reply, calls, answers)}

    async def ainvoke(self, input: object, config: RunnableConfig | None = None, **_: object) -> dict[str, Any]:
        """Answers as `invoke` does, reads concurrently."""
        calls, reply = self._read_calls(input)
        async with self._open_async(config) as executor:
            if self._may_settle:
                await executor.settle_before_run_async()
            questions = _Questions(executor.environment.session)
            answers = await executor.answer_async(calls, reply=reply)
            while isinstance(answers, PendingAnswers):
                value = await ASYNC.in_thread(partial(questions.ask, answers))
                await ASYNC.in_thread(partial(questions.take, interrupt(value)))
                answers = await executor.answer_async(calls, reply=reply)
        return {self._key: _messages(executor.environment.session.session_id, reply, calls, answers)}

    @synchronous_entry
    def prompt_for(self, config: RunnableConfig) -> ThreadPrompt:
        """The prompt of a thread for a model node; it changes when the model opens sections, or a result is cut.

        Raises:
            InvalidArgumentError: the configuration has no thread.
            SessionLockedError: another process has the session open.
        """
        with self._open(config) as executor:
            return ThreadPrompt(executor.text, [*map(_function, executor.tools)])

    async def prompt_for_async(self, config: RunnableConfig) -> ThreadPrompt:
        """As `prompt_for`, without blocking the event loop."""
        return await ASYNC.in_thread(partial(self.prompt_for, config))

    def _read_calls(self, state: object) -> tuple[tuple[ToolCall, ...], str]:
        messages: list[Any] = (state.get(self._key) if is_object(state) else getattr(state, self._key, None)) or []
        message = next((one for one in reversed(messages) if isinstance(one, AIMessage)), None)
        if message is None or not message.id:
            send = f"Send(node, {{{self._key!r}: [message.model_copy(update={{'tool_calls': [call]}})]}})"
            expected = f"a state whose {self._key!r} has a message of the model with an id, which `add_messages` makes"
            raise _refusal(argument="input", value=state, expected=f"{expected}; for a call by itself: {send}")
        # Arguments that are not JSON are refused by the pipeline, in words for the model.
        requests = (*message.tool_calls, *message.invalid_tool_calls)
        calls = [ToolCall(one["id"] or "", one["name"] or "", one["args"] or {}) for one in requests]
        # A call that has an answer in the state, as a person may have written one, is not made.
        answers = {one.tool_call_id for one in messages[messages.index(message) :] if isinstance(one, ToolMessage)}
        return tuple(call for call in calls if call.id not in answers), message.id

    @contextmanager
    def _open(self, config: RunnableConfig | None, *, for_calls: bool = False) -> Generator[ToolExecutor]:
        settings = (config or {}).get("configurable", {})
        can_resume = settings.get(_CHECKPOINTER, settings.get("checkpoint_ns")) is not None  # none outside of a graph
        if for_calls and can_resume:
            _check_durability(self._prompt, settings.get(_DURABILITY, "async"))
        # Without a checkpointer no graph is resumed with an answer, so calls that are to be approved are refused.
        approver = self._approver or (_leave_open if can_resume else None)
        key = id(self._store), _session_id(settings)
        with _SHARED_LOCK:
            entry = _SHARED.setdefault(key, _SharedSession())
            entry.users += 1
        try:
            with entry.lock:
                session = entry.session = entry.session or self._store.session(key[1], **self._options)
                if self._on_open is not None and self._on_open not in session.attached:
                    session.attached[self._on_open] = self._on_open(session)
            with ToolExecutor(prompt=self._prompt, session=session, approver=approver) as executor:
                self._ledger = executor.environment.find_ledger()  # lives until the next session needs it
                yield executor
        finally:
            with _SHARED_LOCK:
                entry.users -= 1
                if is_last := not entry.users:
                    del _SHARED[key]
            if is_last and entry.session is not None:
                entry.session.close()

    @asynccontextmanager
    async def _open_async(self, config: RunnableConfig | None) -> AsyncGenerator[ToolExecutor]:
        stack = ExitStack()
        try:
            executor = await ASYNC.in_thread(partial(stack.enter_context, self._open(config, for_calls=True)))
            await read_ahead(executor.environment.session)
            yield executor
        finally:
            await ASYNC.in_thread(stack.close)


class _Questions:
    """The open questions about the calls of a message, by their ids, and where they are answered: in the session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._items: dict[str, PostponedCall] = {}
        self._faults: list[str] = []

    def ask(self, answers: PendingAnswers) -> dict[str, Any]:
        """The value of the interrupt."""
        items = {item.call: item for item in calls_that_wait(self._session)}
        self._items, questions, waits = {}, list[dict[str, Any]](), list[dict[str, Any]]()
        for one in answers.questions:
            item = None if one.request is None else items.get(one.request.call.storable)
            if item is None or (question := item.question) is None:
                waits.append({"call": one.call.id, "tool": one.call.name, "reason": one.reason})
                continue
            # A question that is open again after an answer has another time, so the answer does not hold for it.
            name = digest([str(item.call), question.digest, question.asks, item.at.isoformat()])[:16]
            self._items[name] = item
            what = {"id": name, "call": str(item.call), "tool": item.tool, "effect": question.effect}
            arguments = read_arguments(question.arguments.encode()).arguments
            questions.append({**what, "arguments": arguments, "asks": [*question.asks], "reason": one.reason})
        return {"questions": questions, "waits": waits, "faults": self._faults}

    def take(self, resume: object) -> None:
        """Records the answers of a resume, each for the question that it names."""
        fault = f"the resume is {resume!r:.100}; it must be {_ANSWERS}"
        self._faults = [] if is_object(resume) or not self._items else [fault]
        for name, answer in resume.items() if is_object(resume) else ():
            item, verdict = self._items.get(name), _parse_answer(answer)
            if item is not None and verdict is not None:
                record = self._session.calls.find(item.call.outermost)
                last_attempt = record.at if isinstance(record, ToolInvoked) else None
                self._session[PostponedCall].append(item.with_answer(verdict, last_attempt))
            else:
                fault = "not the id of an open question" if item is None else f"answered {answer!r:.100}"
                self._faults.append(f"{name!r:.100} is {fault}; the resume must be {_ANSWERS}")


class _SharedSession:
    # The first node that needs it opens it, and the last one closes it.
    __slots__ = ("lock", "session", "users")

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held while it is opened
        self.session: Session | None = None
        self.users = 0


# Of the process: the sessions that nodes have open, by the identity of the store, which an open session refers to.
_SHARED: dict[tuple[int, str], _SharedSession] = {}

# Of the process, as `_SHARED`, which it guards.
_SHARED_LOCK = threading.Lock()


def _session_id(settings: Mapping[str, Any]) -> str:
    if (thread := settings.get("thread_id")) is None:
        expected = 'the id of a conversation: app.invoke(input, {"configurable": {"thread_id": "chat-17"}}); a node of '
        expected += "your own that calls this one hands its `config` on: node.invoke(state, config)"
        raise _refusal(argument="thread_id", value=None, expected=expected)
    # `GRAPH:TASK|NODE:TASK`, for a graph that a node calls again `GRAPH:TASK|1|NODE:TASK`; the last part is this node.
    *graphs, _ = str(settings.get("checkpoint_ns", "")).split("|")
    return "/".join((str(thread), *(part.partition(":")[0] for part in graphs if not part.isdecimal())))


def _check_durability(prompt: Prompt[Any], durability: object) -> None:
    for tool, _ in prompt.template.placed_tools() if durability != "sync" else ():
        if tool.effect == "external" and not (tool.idempotency and tool.idempotency.has_key):
            why = "Otherwise a kill may lose the message of the model, and what it asks for then is a new call"
            expected = f'"sync", as {tool.name} is external and has no key: app.invoke(..., durability="sync"). {why}'
            raise _refusal(argument="durability", value=durability, expected=expected)


def _messages(session_id: str, reply: str, calls: Sequence[ToolCall], answers: Answers) -> list[ToolMessage]:
    ids, messages = set[str](), list[ToolMessage]()
    for call, answer in zip(calls, answers, strict=True):
        ref = CallRef(checked_reply(reply), distinct_call(call, reply, ids).id)
        message = ToolMessage(
            content=[*map(_block, answer.parts)] if answer.parts else answer.content,
            tool_call_id=call.id,
            name=call.name,
            status="success" if answer.success else "error",
            artifact={"session": session_id, "call": str(ref)},
        )
        messages.append(message)
    return messages


def _block(part: ContentPart) -> str | dict[str, Any]:
    if not isinstance(part, BinaryPart):
        return {"type": "text", "text": part.text}
    kind = part.media_type.partition("/")[0]
    return {"type": kind if kind in _OWN_BLOCKS else "file", "base64": part.base64, "mime_type": part.media_type}


def _function(tool: Tool[Any, Any]) -> dict[str, Any]:
    described = {"name": tool.name, "description": tool_description(tool)}
    return {"type": "function", "function": {**described, "parameters": tool.parameters_schema}}


def _leave_open(request: ApprovalRequest) -> Approval:
    return Approval.later(f"{request.tool.name} waits for approval")


def _parse_answer(answer: object) -> GivenAnswer | None:
    approved, reason = (answer.get("approved"), answer.get("reason", "")) if is_object(answer) else (answer, "")
    if not isinstance(approved, bool) or not isinstance(reason, str):  # any text is true
        return None
    return GivenAnswer(approved=approved, reason=redacted(reason))
