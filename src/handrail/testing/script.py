"""A script: the replies of a model, and what it must receive before each.

    Script([
        Reply(calls=[Call("read_file", {"path": "notes.md"})]),
        Reply(text="Done.", expect=Expect(messages={"call-1": Outcome.ok("buy milk")})),
    ])

A script is data: `handrail.testing.playback` plays it without a model, `handrail.testing.scripted_model` as a model,
and `handrail.testing.script_file` reads it from a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from handrail.errors import ScriptError
from handrail.limits import TokenUsage


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
