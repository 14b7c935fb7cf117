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
from typing import Any

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import ScriptError
from handrail.limits import TokenUsage
from handrail.runtime import ToolCall, ToolMessage
from handrail.serde.formatting import enumerated


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a reply.

    Attributes:
        name: the tool's name, known or not.
        arguments: the arguments; text is played unchanged, and need not be JSON.
        id: the id of the call; by default `call-1`, `call-2`, ... by its position in the script.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str = ""

    @property
    def arguments_text(self) -> str:
        """The arguments as the text that a provider sends.

        Raises:
            TypeError: they have a value that JSON cannot represent.
        """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What the model must receive before a reply.

    Attributes:
        instructions: texts that the instructions contain.
        tools: names of offered tools; there may be more.
        texts: texts that the messages since the last reply contain, each in at least one of them.
        messages: the outcomes of the calls of the last reply, by the id of the call; there may be more.

    Raises:
        ScriptError: a text is given instead of a list of texts.
    """

    instructions: Sequence[str] = ()
    tools: Sequence[str] = ()
    texts: Sequence[str] = ()
    messages: Mapping[str, Outcome] = field(default_factory=dict[str, Outcome])

    def __post_init__(self) -> None:
        for name in ("instructions", "tools", "texts"):
            given: object = getattr(self, name)
            if isinstance(given, str):
                raise ScriptError(f"Expect({name}={given!r}) must be a list; write {name}=[{given!r}].")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply of the model. A reply without calls is an answer, and ends the run.

    Attributes:
        text: its text.
        calls: its tool calls, in order.
        output: a structured answer, as the fields of the prompt's output type.
        usage: the tokens that it reports; estimated from its text by default.
        expect: what the model must receive before it.
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
    """The replies of a run, in order.

    Attributes:
        replies: the replies; every call in them has an id.
        name: the name of the script in errors.

    Raises:
        ScriptError: two calls have one id, arguments cannot be written as JSON, a reply is within a call that was not
            made before it, or an item is not a reply.
    """

    replies: Sequence[Reply]
    name: str = "the script"

    def __post_init__(self) -> None:
        replies = _numbered(self.replies, self.name)
        # The class is frozen; only the numbered replies are ever visible.
        object.__setattr__(self, "replies", replies)


def _numbered(replies: Iterable[object], name: str) -> tuple[Reply, ...]:
    numbered: list[Reply] = []
    taken: set[str] = set()
    # Counted over the whole script, and not for each reply, so that an id names one call.
    number = 0
    for step, reply in enumerate(replies, start=1):
        if not isinstance(reply, Reply):
            raise ScriptError(
                f"{name}: {reply!r} is not a Reply; write Reply(text=...) or Reply(calls=[...]).", step=step
            )
        # `taken` has only the calls of earlier replies here, so a reply cannot be within its own call.
        if reply.within and reply.within not in taken:
            raise ScriptError(f"{name}: no reply before this one makes the call {reply.within!r}.", step=step)
        calls: list[Call] = []
        for call in reply.calls:
            # An explicit id does not stop the count: the third call is `call-3`, whatever the others are named.
            number += 1
            identified = replace(call, id=call.id or f"call-{number}")
            if identified.id in taken:
                raise ScriptError(f"{name}: the id {identified.id!r} is given twice; each call has its own.", step=step)
            taken.add(identified.id)
            try:
                identified.arguments_text  # noqa: B018 - evaluated, so that a fault is raised here
            except TypeError as error:
                raise ScriptError(f"{name}: the arguments of {identified.id}: {error}", step=step) from error
            calls.append(identified)
        numbered.append(replace(reply, calls=tuple(calls)))
    return tuple(numbered)


# ------------------------------------------------------------------------------------------------------------- playback


_LONGEST_QUOTE = 300
"""Characters of a sent text that an error quotes."""

_MOST_LISTED = 600
"""Bytes of the ids of calls in an error."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message as the model read it.

    Attributes:
        call_id: the id of the call that it answers.
        content: its text.
        success: whether the call succeeded.
    """

    call_id: str
    content: str
    success: bool


@dataclass(frozen=True, slots=True)
class SentMessages:
    """What the model received before a reply.

    Attributes:
        instructions: the instructions.
        tools: the names of the offered tools.
        messages: the answers to the calls of its last reply.
        asked: the ids of those calls in the history, in the order of the calls. They differ from those of the script if
            its ids are already used, for example by an earlier run on the same session. Empty if none differs.
    """

    instructions: str = ""
    tools: tuple[str, ...] = ()
    messages: tuple[SentMessage, ...] = ()
    asked: tuple[str, ...] = ()


class Playback:
    """The position in the playback of a script. Thread-safe.

    Attributes:
        script: the script.
        played: how many of its replies have been played.
    """

    __slots__ = ("_lock", "played", "script")

    def __init__(self, script: Script) -> None:
        """Start before the first reply."""
        self.script: Script = script
        self.played: int = 0
        self._lock = threading.Lock()

    def next(self, sent: SentMessages) -> Reply:
        """Check what was sent against the script, and return the next reply.

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
                    f"It was sent {_describe(sent)}. A script is played once; make another model for another run.",
                    step=step,
                )
            reply = replies[step - 1]
            # Replies of an agent that was called as a tool are interleaved with those of its caller; each has its own
            # last reply.
            before = [earlier for earlier in replies[: step - 1] if earlier.within == reply.within]
            asked = [call.id for call in before[-1].calls] if before else []
            sent = _by_ids_of_script(sent, asked)
            faults = [*_unanswered(asked, sent), *_differences(reply.expect or Expect(), sent)]
            if faults:
                raise ScriptError(f"reply {step} of {self.script.name}: {' '.join(faults)}", step=step)
            # Only after the checks: a request that was refused does not use up the reply.
            self.played = step
            return reply

    def assert_finished(self) -> None:
        """Check that the script was played to its end.

        Raises:
            ScriptError: it was not; the message lists the remaining replies.
        """
        with self._lock:
            left = self.script.replies[self.played :]
            if left:
                waiting = "; ".join(_named(reply) for reply in left)
                raise ScriptError(
                    f"the run ended after reply {self.played} of {self.script.name}, which has "
                    f"{len(self.script.replies)}. Not played: {waiting}.",
                    step=self.played + 1,
                )


def play(script: Script, executor: ToolExecutor, *, reply: str = "reply") -> tuple[ToolMessage, ...]:
    """Play a script through `executor.execute_all`, reply by reply; returns the messages of all calls.

    Args:
        script: the script.
        executor: runs the calls.
        reply: the prefix of the names of the replies: `reply-1`, `reply-2`, ... If the script is played again on one
            session with the same prefix, calls that have a final record are answered from it; with another all of them
            are new.

    Raises:
        ScriptError: the outcome differs from the script, or the script does not end with an answer.
        RunAbortedError: as `ToolExecutor.execute_all`.
    """
    playing = _Playing(script, executor)
    for number, calls in enumerate(playing, start=1):
        playing.answer(executor.execute_all(calls, reply=f"{reply}-{number}"))
    return tuple(playing.messages)


async def play_async(script: Script, executor: ToolExecutor, *, reply: str = "reply") -> tuple[ToolMessage, ...]:
    """Play a script through `executor.execute_all_async`; see `play`."""
    playing = _Playing(script, executor)
    for number, calls in enumerate(playing, start=1):
        playing.answer(await executor.execute_all_async(calls, reply=f"{reply}-{number}"))
    return tuple(playing.messages)


class _Playing:
    """The calls of a script for an executor, one reply after the other."""

    def __init__(self, script: Script, executor: ToolExecutor) -> None:
        self._executor = executor
        self.messages: list[ToolMessage] = []
        self._playback = Playback(script)
        self._sent = self._sent_with(())

    def __iter__(self) -> Iterator[list[ToolCall]]:
        # The expectations of a reply are checked when it is requested, so after the messages of the one before.
        while calls := self._playback.next(self._sent).calls:
            yield [ToolCall(call.id, call.name, call.arguments_text) for call in calls]
        self._playback.assert_finished()

    def answer(self, messages: tuple[ToolMessage, ...]) -> None:
        self.messages.extend(messages)
        sent = tuple(SentMessage(message.call_id, message.content, message.success) for message in messages)
        self._sent = self._sent_with(sent)

    def _sent_with(self, messages: tuple[SentMessage, ...]) -> SentMessages:
        text = self._executor.environment.rendered_prompt.text
        return SentMessages(text, tuple(tool.name for tool in self._executor.tools), messages)


def _by_ids_of_script(sent: SentMessages, ids: list[str]) -> SentMessages:
    """What was sent, with the ids of the script instead of those of the history."""
    given = dict(zip(sent.asked, ids, strict=False))  # a structured answer may be one call more
    messages = (replace(message, call_id=given.get(message.call_id, message.call_id)) for message in sent.messages)
    return replace(sent, messages=tuple(messages))


def _unanswered(asked: list[str], sent: SentMessages) -> Iterator[str]:
    answered = [message.call_id for message in sent.messages]
    missing = [call_id for call_id in asked if call_id not in answered]
    if missing:
        unanswered, came = (enumerated(calls, limit=_MOST_LISTED) for calls in (missing, answered))
        yield f"The calls {unanswered} were not answered; the answers were to {came or 'none'}."


def _differences(expect: Expect, sent: SentMessages) -> Iterator[str]:
    for text in expect.instructions:
        if text not in sent.instructions:
            yield f"The instructions do not contain {text!r}; they are {_quoted(sent.instructions)}."
    absent = [name for name in expect.tools if name not in sent.tools]
    if absent:
        yield f"The tools {', '.join(absent)} were not offered; offered were {', '.join(sent.tools) or 'none'}."
    for text in expect.texts:
        if not any(text in message.content for message in sent.messages):
            yield f"No message contains {text!r}; it was sent {_describe(sent)}."
    by_id = {message.call_id: message for message in sent.messages}
    for call_id, outcome in expect.messages.items():
        yield from _outcome_differences(call_id, outcome, by_id.get(call_id), sent)


def _outcome_differences(
    call_id: str, outcome: Outcome, message: SentMessage | None, sent: SentMessages
) -> Iterator[str]:
    if message is None:
        yield f"There is no answer to {call_id}; it was sent {_describe(sent)}."
        return
    if message.success is not outcome.success:
        expected, came = ("succeed", "failed") if outcome.success else ("fail", "succeeded")
        yield f"{call_id} was to {expected}, but it {came}: {_quoted(message.content)}."
    for text in outcome.texts:
        if text not in message.content:
            yield f"The answer to {call_id} does not contain {text!r}; it is {_quoted(message.content)}."


def _describe(sent: SentMessages) -> str:
    text = [
        f"{message.call_id} ({'ok' if message.success else 'failed'}): {_quoted(message.content)}"
        for message in sent.messages
    ]
    return "; ".join(text) or "no messages"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")


def _named(reply: Reply) -> str:
    calls: list[Any] = [call.name for call in reply.calls]
    return f"calls of {', '.join(calls)}" if calls else f"the answer {_quoted(reply.text)}"
