"""A script: the replies of a model, and what it must receive before each; and its playback.

    Script([
        Reply(calls=[Call("read_file", {"path": "notes.md"})]),
        Reply(text="Done.", expect=Expect(messages={"call-1": Outcome.ok("buy milk")})),
    ])

`play` runs the calls of a script through a `ToolExecutor`, without a model. `handrail.testing.scripted_model` plays it
as a model, and `handrail.testing.script_file` reads it from a file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import ScriptError
from handrail.limits import TokenUsage
from handrail.runtime import ToolCall, ToolMessage


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a reply.

    Attributes:
        name: the tool's name, known or not.
        arguments: the arguments; text is played unchanged, and need not be JSON.
        id: by default `call-1`, `call-2`, ... by its position in the script.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str = ""

    @property
    def arguments_text(self) -> str:
        """The arguments as the text that a provider sends."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(dict(self.arguments))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The expected outcome of a call; created by `Outcome.ok` and `Outcome.failed`.

    Attributes:
        success: whether the call must have succeeded.
        texts: what its message must contain.
    """

    success: bool
    texts: tuple[str, ...] = ()

    @classmethod
    def ok(cls, *texts: str) -> Outcome:
        """The call succeeded, and its message contains all the texts."""
        return cls(success=True, texts=texts)

    @classmethod
    def failed(cls, *texts: str) -> Outcome:
        """The call failed, and its message contains all the texts."""
        return cls(success=False, texts=texts)


OutcomeForm: TypeAlias = Outcome | Literal["ok", "failed"] | Mapping[Literal["ok", "failed"], Sequence[str]]
"""An outcome, also as a file has it: `"ok"`, `{"failed": ["a text"]}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """The expected input of the model before a reply.

    Attributes:
        instructions: texts that the instructions contain.
        tools: names of offered tools; there may be more.
        texts: texts that the messages since the last reply contain, each in at least one of them.
        messages: the outcomes of the calls of the last reply, by the id of the call; there may be more.

    Raises:
        ScriptError: a text stands for a list of texts.
    """

    instructions: Sequence[str] = ()
    tools: Sequence[str] = ()
    texts: Sequence[str] = ()
    messages: Mapping[str, OutcomeForm] = field(default_factory=dict[str, OutcomeForm])

    def __post_init__(self) -> None:
        for name in ("instructions", "tools", "texts"):
            value: object = getattr(self, name)
            if isinstance(value, str):
                raise ScriptError(f"Expect({name}={value!r}) must be a list; write {name}=[{value!r}].")
        for form in self.messages.values():
            if isinstance(form, Mapping) and len(form) != 1:
                raise ScriptError("an outcome is either ok or failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply of the model. A reply without calls is an answer, and ends the run.

    Attributes:
        output: a structured answer, as the fields of the prompt's output type.
        usage: the tokens that it reports; estimated from its text by default.
        expect: the expected input of the model before it.
        within: for a reply of an agent that was called as a tool, the id of that call. Its replies are between the
            reply with the call and the reply after its answer.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    output: Mapping[str, Any] | None = None
    usage: TokenUsage | None = None
    expect: Expect | None = None
    within: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """The replies of a run, in order; `name` names the script in errors.

    Raises:
        ScriptError: two calls have one id, or a reply is within a call that was not made before it.
    """

    replies: Sequence[Reply]
    name: str = "the script"

    def __post_init__(self) -> None:
        # The class is frozen; only the numbered replies are ever visible.
        object.__setattr__(self, "replies", _number_calls(self.replies, self.name))


def _number_calls(replies: Iterable[Reply], name: str) -> tuple[Reply, ...]:
    replies_with_ids: list[Reply] = []
    ids: set[str] = set()
    # Counted over the whole script, and not for each reply, so that an id names one call.
    number = 0
    for step, reply in enumerate(replies, start=1):
        # `taken` has only the calls of earlier replies here, so a reply cannot be within its own call.
        if reply.within and reply.within not in ids:
            raise ScriptError(f"{name}: no reply before this one makes the call {reply.within!r}.", step=step)
        calls: list[Call] = []
        for call in reply.calls:
            # An explicit id does not stop the count: the third call is `call-3`, whatever the others are named.
            number += 1
            own_call = replace(call, id=call.id or f"call-{number}")
            if own_call.id in ids:
                raise ScriptError(f"{name}: the id {own_call.id!r} is given twice; each call has its own.", step=step)
            ids.add(own_call.id)
            calls.append(own_call)
        replies_with_ids.append(replace(reply, calls=tuple(calls)))
    return tuple(replies_with_ids)


# ------------------------------------------------------------------------------------------------------------- playback


_LONGEST_QUOTE = 300
"""Characters of a sent text that an error quotes."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message as the model read it: the answer to a call."""

    call_id: str
    content: str
    success: bool


@dataclass(frozen=True, slots=True)
class SentMessages:
    """The input of the model since its last reply.

    Attributes:
        tools: the names of the offered tools.
        messages: the answers to the calls of its last reply.
        call_ids: the ids of those calls in the history, in the order of the calls. They differ from those of the script
            if its ids are already used, for example by an earlier run on the same session. Empty if none differs.
    """

    instructions: str = ""
    tools: tuple[str, ...] = ()
    messages: tuple[SentMessage, ...] = ()
    call_ids: tuple[str, ...] = ()


class Playback:
    """The position in the playback of a `script`: `played` of its replies have been played. Thread-safe."""

    __slots__ = ("_lock", "played", "script")

    def __init__(self, script: Script) -> None:
        self.script: Script = script
        self.played: int = 0
        self._lock = threading.Lock()

    def next(self, received: SentMessages) -> Reply:
        """Checks the input of the model against the script, and returns the next reply.

        Raises:
            ScriptError: it differs, or the script has ended. The message lists every difference.
        """
        # The check and the step are one operation: two concurrent requests must not receive the same reply.
        with self._lock:
            replies = self.script.replies
            step = self.played + 1
            if step > len(replies):
                raise ScriptError(
                    f"{self.script.name} has ended with reply {len(replies)}, but the run asks for another. "
                    f"It was sent {_describe(received)}. A script is played once; make another model for another run.",
                    step=step,
                )
            reply = replies[step - 1]
            # Replies of an agent that was called as a tool are interleaved with those of its caller; each has its own
            # last reply.
            before = [earlier for earlier in replies[: step - 1] if earlier.within == reply.within]
            call_ids = [call.id for call in before[-1].calls] if before else []
            received = _with_script_ids(received, call_ids)
            faults = [*_missing_answers(call_ids, received), *_differences(reply.expect or Expect(), received)]
            if faults:
                raise ScriptError(f"reply {step} of {self.script.name}: {' '.join(faults)}", step=step)
            # Only after the checks: a request that was refused does not use up the reply.
            self.played = step
            return reply

    def assert_finished(self) -> None:
        """Raises `ScriptError` with the remaining replies, unless the script was played to its end."""
        with self._lock:
            if rest := self.script.replies[self.played :]:
                names = "; ".join(_describe_reply(reply) for reply in rest)
                raise ScriptError(
                    f"the run ended after reply {self.played} of {self.script.name}, which has "
                    f"{len(self.script.replies)}. Not played: {names}.",
                    step=self.played + 1,
                )


def play(script: Script, executor: ToolExecutor, *, reply: str = "reply") -> tuple[ToolMessage, ...]:
    """Plays a script through `executor.execute_all`, reply by reply; returns the messages of all calls.

    Args:
        script: the script.
        executor: runs the calls.
        reply: the prefix of the names of the replies: `reply-1`, `reply-2`, ... If the script is played again on one
            session with the same prefix, calls that have a final record are answered from it; with another all are new.

    Raises:
        ScriptError: the outcome differs from the script, or the script does not end with an answer.
        RunAbortedError: as `ToolExecutor.execute_all`.
    """
    messages: list[ToolMessage] = []
    for number, calls in enumerate(_calls_of_replies(script, executor, messages), start=1):
        messages += executor.execute_all(calls, reply=f"{reply}-{number}")
    return tuple(messages)


async def play_async(script: Script, executor: ToolExecutor, *, reply: str = "reply") -> tuple[ToolMessage, ...]:
    """Plays a script through `executor.execute_all_async`; see `play`."""
    messages: list[ToolMessage] = []
    for number, calls in enumerate(_calls_of_replies(script, executor, messages), start=1):
        messages += await executor.execute_all_async(calls, reply=f"{reply}-{number}")
    return tuple(messages)


def _calls_of_replies(script: Script, executor: ToolExecutor, messages: list[ToolMessage]) -> Iterator[list[ToolCall]]:
    playback, before = Playback(script), 0
    while True:
        # The expectations of a reply are checked when it is requested, so after the messages of the one before.
        answers = tuple(SentMessage(message.call_id, message.content, message.success) for message in messages[before:])
        before, text = len(messages), executor.environment.rendered_prompt.text
        calls = playback.next(SentMessages(text, tuple(tool.name for tool in executor.tools), answers)).calls
        if not calls:
            return playback.assert_finished()
        yield [ToolCall(call.id, call.name, call.arguments_text) for call in calls]


def _with_script_ids(received: SentMessages, ids: list[str]) -> SentMessages:
    script_ids = dict(zip(received.call_ids, ids, strict=False))  # a structured answer may be one call more
    messages = (
        replace(message, call_id=script_ids.get(message.call_id, message.call_id)) for message in received.messages
    )
    return replace(received, messages=tuple(messages))


def _missing_answers(call_ids: list[str], received: SentMessages) -> Iterator[str]:
    answer_ids = [message.call_id for message in received.messages]
    missing_ids = [call_id for call_id in call_ids if call_id not in answer_ids]
    if missing_ids:
        came = ", ".join(answer_ids) or "none"
        yield f"The calls {', '.join(missing_ids)} were not answered; the answers were to {came}."


def _differences(expect: Expect, received: SentMessages) -> Iterator[str]:
    for text in expect.instructions:
        if text not in received.instructions:
            yield f"The instructions do not contain {text!r}; they are {_quote(received.instructions)}."
    absent = [name for name in expect.tools if name not in received.tools]
    if absent:
        yield f"The tools {', '.join(absent)} were not offered; offered were {', '.join(received.tools) or 'none'}."
    for text in expect.texts:
        if not any(text in message.content for message in received.messages):
            yield f"No message contains {text!r}; it was sent {_describe(received)}."
    by_id = {message.call_id: message for message in received.messages}
    for call_id, form in expect.messages.items():
        yield from _outcome_differences(call_id, _outcome(form), by_id.get(call_id), received)


def _outcome(form: OutcomeForm) -> Outcome:
    if isinstance(form, Outcome):
        return form
    if isinstance(form, str):
        return Outcome(form == "ok")
    ((verdict, texts),) = form.items()
    return Outcome(verdict == "ok", tuple(texts))


def _outcome_differences(
    call_id: str, outcome: Outcome, message: SentMessage | None, received: SentMessages
) -> Iterator[str]:
    if message is None:
        yield f"{call_id} was not answered; it was sent {_describe(received)}."
        return
    if message.success is not outcome.success:
        verb, came = ("succeed", "failed") if outcome.success else ("fail", "succeeded")
        yield f"{call_id} was to {verb}, but it {came}: {_quote(message.content)}."
    for text in outcome.texts:
        if text not in message.content:
            yield f"The answer to {call_id} does not contain {text!r}; it is {_quote(message.content)}."


def _describe(received: SentMessages) -> str:
    text = [
        f"{message.call_id} ({'ok' if message.success else 'failed'}): {_quote(message.content)}"
        for message in received.messages
    ]
    return "; ".join(text) or "no messages"


def _quote(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")


def _describe_reply(reply: Reply) -> str:
    calls = ", ".join(call.name for call in reply.calls)
    return f"calls of {calls}" if calls else f"the answer {_quote(reply.text)}"
