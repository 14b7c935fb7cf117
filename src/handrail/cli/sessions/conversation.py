"""`handrail sessions show`: who said what, as text or as JSON, also while a run adds to it."""

from __future__ import annotations

import json
import shlex
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from time import sleep
from typing import Annotated, Any, cast

from cyclopts import CycloptsError, Parameter

from handrail.cli.options import StoreOptions
from handrail.cli.screen import Screen, clean, format_call, format_duration, format_when
from handrail.errors import SessionError
from handrail.serde.formatting import json_line, shorten
from handrail.session.conversation import Speaker
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.transcript import (
    ApprovalWait,
    ConversationId,
    TranscriptBreak,
    TranscriptCall,
    TranscriptItem,
    TranscriptMessage,
    TranscriptReader,
)
from handrail.transcript.items import CallOutcome

_POLL_SECONDS = 0.5
_MODEL = "assistant"
_INDENT = 2
_MOST_OF_DATA, _MOST_OF_REASON, _MOST_OF_CALL = 200, 200, 120

_OUTCOMES: Mapping[CallOutcome, tuple[str, str]] = {
    "ok": ("ok", ""),
    "refused": ("refused", "red"),
    "failed": ("failed, rolled back", "red"),
    "unknown": ("outcome unknown", "bold red"),
    "unapplied": ("its effect happened, the result is not applied", "bold red"),
    "running": ("running", "yellow"),
    "waiting": ("waits for an approval", "yellow"),
    "answered": ("answered, without a record", ""),
    "open": ("not carried out", ""),
}
"""Each outcome in words, and its style on a terminal."""

_BAD = frozenset[CallOutcome]({"refused", "failed", "unknown", "unapplied"})
"""The outcomes for which the text of the result is shown, because it is the reason."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOptions:
    """What to show of the conversation of a session.

    Attributes:
        conversation: Show the conversation, as is done without --entries.
        last: Only the last N messages of the conversation, with their calls.
        speaker: Only the conversation of the program's own `loop`, of an `agent`, or of a `prompt`.
        agent: Only the conversation of the agent or prompt of this name.
        follow: Show what is added until no process has the session open any more, or until Ctrl-C. In JSON an object a
            line.
    """

    conversation: Annotated[bool, Parameter(negative="")] = False
    last: Annotated[int | None, Parameter(metavar="N")] = None
    speaker: Speaker | None = None
    agent: Annotated[str | None, Parameter(metavar="NAME")] = None
    follow: bool = False

    def check(self) -> None:
        """Check the options, before the store is opened.

        Raises:
            CycloptsError: some of them do not fit together.
        """
        if self.speaker == "loop" and self.agent is not None:
            raise CycloptsError(msg="--speaker loop and --agent contradict each other: a loop of your own has no name")
        if self.last is not None and self.last < 1:
            raise CycloptsError(msg=f"--last is {self.last}; it must be 1 or more")

    def wants(self, item: TranscriptItem) -> bool:
        """Whether an item belongs to a conversation that is shown."""
        speaker, name = item.conversation or (None, None)
        return self.speaker in {None, speaker} and self.agent in {None, name}


ALL_OF_IT = ConversationOptions()
"""The defaults."""


def show_conversation(
    store: Store, row: SessionRow, how: ConversationOptions, options: StoreOptions, *, full: bool
) -> int:
    """Print the conversation of a session.

    Raises:
        SessionError: an agent or prompt is named that has no conversation in it.
        StoreError: the store cannot be read.
    """
    try:
        return _show(store, row, how, options, full=full)
    except KeyboardInterrupt:
        if how.follow:
            # Read again: the reader may have been interrupted.
            reader = TranscriptReader(store, row.session_id)
            deque(reader.read(following=True), maxlen=0)
            open_calls = filter(how.wants, reader.finish())
            if options.as_json:
                _print_json_lines(Screen(), open_calls)
            else:
                print_conversation(Screen(), open_calls, full=full)
        raise


def _show(store: Store, row: SessionRow, how: ConversationOptions, options: StoreOptions, *, full: bool) -> int:
    screen = Screen()
    reader = TranscriptReader(store, row.session_id)
    # What is there is held in memory, so that its end can be shown alone.
    begin = list(chain(reader.read(following=how.follow), () if how.follow else reader.finish()))
    items = [item for item in begin if how.wants(item)]
    if not items and how.agent is not None and not how.follow:
        names = {item.conversation.name for item in begin if item.conversation is not None}
        known = ", ".join(sorted(names - {""})) or "no agent or prompt"
        raise SessionError(f"session {row.session_id} has no conversation of {how.agent}; it has those of {known}")
    selection = items if how.last is None else _last(items, how.last)
    rest = filter(how.wants, _added(store, row.session_id, reader, screen)) if how.follow else iter(())
    if options.as_json and not how.follow:
        screen.json(session_json(row) | {"conversation": [item_json(item) for item in selection]})
        return 0
    if options.as_json:
        screen.json({"type": "session"} | session_json(row), lines=True)
        _print_json_lines(screen, chain(selection, rest))
        return 0
    count = print_conversation(screen, chain(selection, rest), full=full)
    if not count:
        whose = " of its own" if how.speaker is None and how.agent is None else " that fits"
        screen.note(f"Session {row.session_id} has no conversation{whose}; --entries shows its entries.")
    elif how.follow:
        screen.note(f"No process has session {row.session_id} open any more.")
    elif row.session_id in store.held_sessions():
        screen.note(f"A process has session {row.session_id} open; --follow shows what it adds.")
    return 0


def _last(items: Iterable[TranscriptItem], count: int) -> list[TranscriptItem]:
    """The last messages, each with its calls."""
    turns: deque[list[TranscriptItem]] = deque(maxlen=count)
    for item in items:
        if isinstance(item, TranscriptMessage) or not turns:
            turns.append([])
        turns[-1].append(item)
    return [item for turn in turns for item in turn]


def _print_json_lines(screen: Screen, items: Iterable[TranscriptItem]) -> None:
    for item in items:
        screen.json(item_json(item), lines=True)


def _added(store: Store, session_id: str, reader: TranscriptReader, screen: Screen) -> Iterator[TranscriptItem]:
    """What is added until no process holds the session; the calls that have not ended come last."""
    is_held = True
    while is_held:
        # Looked at first: what its holder has written before the release is read below.
        is_held = session_id in store.held_sessions()
        yield from reader.read(following=True)
        if is_held:
            screen.out.file.flush()
            sleep(_POLL_SECONDS)
    yield from reader.finish()


# ----------------------------------------------------------------------------------------------------------------- text


def print_conversation(screen: Screen, items: Iterable[TranscriptItem], *, full: bool) -> int:
    """Print items as text; returns how many there were.

    Args:
        screen: where to.
        items: the items.
        full: whether data and reasons are whole on a terminal, as they are in a pipe, and the arguments and the result
            are printed below each call.
    """
    count = 0
    before: ConversationId | None = None
    for count, item in enumerate(items, 1):
        is_alone = isinstance(item, TranscriptCall) and item.conversation is None
        begins = not isinstance(item, TranscriptCall) or (is_alone and (count == 1 or before is not None))
        if begins and count > 1:
            screen.raw("")
        if isinstance(item, TranscriptBreak):
            screen.text(_break_text(item), style="dim")
        elif isinstance(item, TranscriptMessage):
            _print_message(screen, item, full=full)
        else:
            if begins:
                screen.text("calls without a message", style="bold")
            _print_call(screen, item, _INDENT, full=full)
        before = item.conversation
    return count


def _print_message(screen: Screen, message: TranscriptMessage, *, full: bool) -> None:
    speaker = _whose(message.conversation)
    if message.role != _MODEL:
        speaker = f"{message.role} to {speaker}" if speaker else message.role
    screen.text("  ".join(filter(None, (format_when(message.at), clean(speaker or _MODEL)))), style="bold")
    for block in message.blocks:
        text = block.text.strip("\n")
        if block.kind == "data":
            text = clean(block.text if full else shorten(block.text, _MOST_OF_DATA))
        elif block.kind != "text":  # stated in words, because a pipe has no styles
            text = f"({block.kind}) {text}"
        screen.text(text, indent=_INDENT, style="dim" if block.kind in {"thinking", "data"} else "")


def _whose(conversation: ConversationId) -> str:
    speaker, name = conversation
    return f"prompt {name}" if speaker == "prompt" else name


def _print_call(screen: Screen, call: TranscriptCall, indent: int, *, full: bool) -> None:
    outcome, reason = _outcome_text(call), _reason(call, full=full or not screen.out.is_terminal)
    line = f"{_label(call)} {outcome}{': ' if reason else ''}{reason}"
    screen.text(clean(line), indent=indent, style=_OUTCOMES[call.outcome][1])
    if full:
        arguments: Any = call.arguments
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False, indent=2, default=repr)
        for name, text in (("arguments:", arguments), ("result:", call.content)):
            if text:
                screen.text(name, indent=indent + _INDENT, style="dim")
                screen.text(text.strip("\n"), indent=indent + 2 * _INDENT)
    for nested in call.nested:
        _print_call(screen, nested, indent + _INDENT, full=full)


def _label(call: TranscriptCall) -> str:
    """A call with its arguments shortened."""
    arguments: Any = call.arguments
    if isinstance(arguments, Mapping):
        return format_call(call.tool, cast("Mapping[str, Any]", arguments))
    text = "" if arguments is None else arguments if isinstance(arguments, str) else json_line(arguments)
    return f"{call.tool}({shorten(clean(text), _MOST_OF_CALL)})"


def _outcome_text(call: TranscriptCall) -> str:
    """The outcome of a call, how long it took, and what it waited for."""
    wait = "" if call.wait is None else _wait_text(call.wait)
    outcome = "failed" if call.outcome == "failed" and call.has_effect else _OUTCOMES[call.outcome][0]
    # One that waits says so once, with since when.
    parts = [wait if call.outcome == "waiting" and wait else outcome]
    parts += [f"claimed by {call.owner}"] if call.outcome == "running" and call.owner else []
    parts += ["replayed"] if call.replayed else []
    parts += [] if call.seconds is None else [f"{call.seconds:.1f} s"]
    parts += [] if wait in {"", parts[0]} else [wait]
    parts += [f"in session {call.child}"] if call.child else []
    return ", ".join(parts)


def _reason(call: TranscriptCall, *, full: bool) -> str:
    """Why a call did not succeed, in one line; that of an unknown outcome is whole: a person has to act on it."""
    if call.outcome not in _BAD:
        return ""
    # The tool is named at the start of the line already.
    reason = " ".join(
        call.content.removeprefix(f"{call.tool} failed: ").removeprefix(f"{call.tool} was not run: ").split()
    )
    if call.outcome == "unknown":
        how = f"handrail ledger reconcile {shlex.quote(call.key)} records it" if call.key else ""
        return "; ".join(filter(None, (reason.removesuffix("."), how)))
    return reason if full or len(reason) <= _MOST_OF_REASON else f"{shorten(reason, _MOST_OF_REASON)} --full shows all"


def _wait_text(wait: ApprovalWait) -> str:
    if wait.approved is None:
        return "waits for an approval" + ("" if wait.since is None else f" since {format_when(wait.since)}")
    verdict = "approved" if wait.approved else "denied"
    if wait.duration is None:
        return f"{verdict} by {wait.by or 'a person'}"
    return f"waited {format_duration(wait.duration)} for {wait.by or 'an approval'}: {verdict}"


def _break_text(item: TranscriptBreak) -> str:
    """Where a conversation begins anew, or lost parts, in a sentence."""
    if item.kind == "removed":
        what = "1 part of the conversation was" if item.count == 1 else f"{item.count:,} parts of the conversation were"
        return f"{what} removed here."
    whose = "" if item.conversation is None else _whose(item.conversation)
    begins = f"The conversation{f' of {whose}' if whose else ''} begins anew"
    if not item.count:
        return f"{begins}."
    return f"{begins}; {item.count:,} message{' is' if item.count == 1 else 's are'} repeated and not shown again."


# ----------------------------------------------------------------------------------------------------------------- JSON


def session_json(row: SessionRow) -> dict[str, Any]:
    """A session, for programs."""
    return {
        "session_id": row.session_id,
        "parent": row.parent,
        "tags": dict(row.tags),
        "created_at": row.created_at.isoformat(),
        "entries": row.head,
    }


def item_json(item: TranscriptItem) -> dict[str, Any]:
    """An item of a transcript, for programs; `type` says which kind it is."""
    speaker, name = item.conversation or (None, None)
    whose = {"speaker": speaker, "name": name}
    if isinstance(item, TranscriptCall):
        return {"type": "call"} | whose | _call_json(item)
    if isinstance(item, TranscriptMessage):
        blocks = [{"kind": block.kind, "text": block.text} for block in item.blocks]
        return {"type": "message"} | whose | {"role": item.role, "at": _moment(item.at), "blocks": blocks}
    return {"type": item.kind} | whose | {"count": item.count, "at": _moment(item.at)}


def _call_json(call: TranscriptCall) -> dict[str, Any]:
    wait = call.wait
    return {
        "reply": call.call.reply,
        "call_id": call.call.call_id,
        "tool": call.tool,
        "arguments": call.arguments,
        "outcome": call.outcome,
        "rolled_back": call.outcome == "failed",
        "replayed": call.replayed,
        "content": call.content,
        "seconds": call.seconds,
        "at": _moment(call.at),
        "wait": None
        if wait is None
        else {
            "since": _moment(wait.since),
            "seconds": None if wait.duration is None else wait.duration.total_seconds(),
            "by": wait.by,
            "approved": wait.approved,
        },
        "owner": call.owner,
        "effect_key": call.key or None,
        "child_session": call.child or None,
        "nested": [_call_json(nested) for nested in call.nested],
    }


def _moment(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
