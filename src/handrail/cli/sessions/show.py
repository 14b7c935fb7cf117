"""`handrail sessions show|fork`: the conversation of a session, its entries, and a fork of it.

The conversation is who said what, also while a run adds to it.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from handrail.cli.options import A_FOLDER, COUNT, FILLED, StoreOptions
from handrail.cli.screen import Screen
from handrail.cli.sessions.listing import SESSION
from handrail.errors import SessionError
from handrail.filesystem import HostFilesystem
from handrail.operations.sessions import StoredSession, find_session
from handrail.readable import clean, format_json, format_when
from handrail.serde.formatting import count_noun, shorten
from handrail.session.calls import CallRef
from handrail.session.persistence.loading import copy_files, create_fork_of_row
from handrail.store import Store
from handrail.transcript import (
    ConversationId,
    TranscriptBreak,
    TranscriptCall,
    TranscriptItem,
    TranscriptMessage,
    TranscriptReader,
)
from handrail.transcript.messages import CallOutcome
from handrail.transcript.wording import break_text, call_text, outcome_text, speaker_text

_INDENT = 2
_MOST_OF_DATA, _MOST_OF_REASON, _MOST_OF_NAME = 200, 200, 200

_STYLES: Mapping[CallOutcome, str] = {
    **dict.fromkeys(("refused", "failed"), "red"),
    **dict.fromkeys(("unknown", "unapplied"), "bold red"),
    **dict.fromkeys(("running", "waiting"), "yellow"),
}
"""The style of an outcome on a terminal."""

# The outcomes for which the text of the result is shown, because it is the reason.
_BAD = frozenset[CallOutcome]({"refused", "failed", "unknown", "unapplied"})


def show_session(
    session: str,
    /,
    *,
    full: bool = False,
    last: Annotated[int | None, COUNT] = None,
    options: StoreOptions = StoreOptions(),
) -> None:
    """Show one session: who said what, and each call with its outcome, also while a process has the session open.

    Example: `handrail sessions show night-desk --last 5`

    Args:
        session: The id of the session, as `sessions list` shows it.
        full: Print arguments and results whole.
        last: Only the last N messages of the conversation, with their calls.
        options: The store and the output format.
    """
    screen = Screen()
    with options.open() as store:
        session_view = StoredSession(store, find_session(store, session), store.held_sessions())
        reader = TranscriptReader(store, session)
        items = _last([*reader.read(), *reader.unfinished()], last)
        if options.as_json:
            screen.json(SESSION.json(session_view) | {"conversation": [item_json(item) for item in items]})
        elif not print_conversation(screen, items, full=full):
            screen.note(f"Session {session} has neither a conversation nor calls.")
        elif session in session_view.in_use:
            screen.note(f"A process has session {session} open; handrail view shows what it adds.")


# -------------------------------------------------------------------------------------------------------- conversation


def _last(items: list[TranscriptItem], count: int | None) -> list[TranscriptItem]:
    messages = [place for place, item in enumerate(items) if isinstance(item, TranscriptMessage)]
    return items if count is None or len(messages) <= count else items[messages[-count] :]


def print_conversation(screen: Screen, items: Iterable[TranscriptItem], *, full: bool) -> int:
    """Prints items as text; returns how many there were."""
    count = 0
    before: ConversationId | None = None
    for count, item in enumerate(items, 1):
        is_alone = isinstance(item, TranscriptCall) and item.conversation is None
        begins = not isinstance(item, TranscriptCall) or (is_alone and (count == 1 or before is not None))
        if begins and count > 1:
            screen.raw("")
        if isinstance(item, TranscriptBreak):
            screen.text(break_text(item), style="dim")
        elif isinstance(item, TranscriptMessage):
            _print_message(screen, item, full=full)
        else:
            if begins:
                screen.text("calls without a message", style="bold")
            _print_call(screen, item, _INDENT, full=full)
        before = item.conversation
    return count


def _print_message(screen: Screen, message: TranscriptMessage, *, full: bool) -> None:
    screen.text("  ".join(filter(None, (format_when(message.at), speaker_text(message)))), style="bold")
    for block in message.blocks:
        text = block.text.strip("\n")
        if block.kind == "data":
            text = clean(block.text if full else shorten(block.text, _MOST_OF_DATA))
        elif block.kind != "text":  # stated in words, because a pipe has no styles
            text = f"({block.kind}) {text}"
        screen.text(text, indent=_INDENT, style="dim" if block.kind in {"thinking", "data"} else "")


def _print_call(screen: Screen, call: TranscriptCall, indent: int, *, full: bool) -> None:
    outcome, reason = outcome_text(call), _reason(call, full=full or not screen.out.is_terminal)
    line = f"{call_text(call)} {outcome}{': ' if reason else ''}{reason}"
    screen.text(clean(line), indent=indent, style=_STYLES.get(call.outcome, ""))
    if full:
        for name, text in (("arguments:", format_json(call.arguments, indent=2)), ("result:", call.content)):
            if text:
                screen.text(name, indent=indent + _INDENT, style="dim")
                screen.text(text.strip("\n"), indent=indent + 2 * _INDENT)
    for nested in call.nested:
        _print_call(screen, nested, indent + _INDENT, full=full)


def _reason(call: TranscriptCall, *, full: bool) -> str:
    if call.outcome not in _BAD:
        return ""
    # The tool is named at the start of the line already.
    reason = " ".join(
        call.content.removeprefix(f"{call.tool} failed: ").removeprefix(f"{call.tool} was not run: ").split()
    )
    if call.outcome == "unknown":
        how = f"handrail ledger reconcile {shlex.quote(call.key)} records it" if call.key else ""
        return "; ".join(filter(None, (reason.removesuffix("."), how)))
    return reason if full else shorten(reason, _MOST_OF_REASON)


def item_json(item: TranscriptItem) -> dict[str, Any]:
    """An item of a transcript, for programs; `type` says which kind it is."""
    speaker, name = item.conversation or (None, None)
    whose = {"speaker": speaker, "name": name}
    if isinstance(item, TranscriptCall):
        return {"type": "call"} | whose | _call_json(item)
    if isinstance(item, TranscriptMessage):
        blocks = [{"kind": block.kind, "text": block.text} for block in item.blocks]
        return {"type": "message"} | whose | {"role": item.role, "at": item.at, "blocks": blocks}
    return {"type": item.kind} | whose | {"count": item.count, "at": item.at}


def _call_json(call: TranscriptCall) -> dict[str, Any]:
    wait = call.wait
    return {
        "reply": call.call.reply,
        "call_id": call.call.call_id,
        "tool": call.tool,
        "arguments": call.arguments,
        "outcome": call.outcome,
        "rolled_back": call.outcome in {"failed", "undone"},
        "replayed": call.replayed,
        "content": call.content,
        "seconds": call.seconds,
        "at": call.at,
        "wait": wait and {"since": wait.since, "seconds": wait.duration, "by": wait.by, "approved": wait.approved},
        "owner": call.owner,
        "effect_key": call.key or None,
        "child_session": call.child or None,
        "nested": [_call_json(nested) for nested in call.nested],
    }


# --------------------------------------------------------------------------------------------------------------- forks


def fork_session(  # noqa: PLR0913 - the options of the command
    session: str,
    /,
    *,
    at: Annotated[str | None, Parameter(metavar="CALL")] = None,
    as_: Annotated[str | None, FILLED, Parameter(name="--as", metavar="ID")] = None,
    new_keys: Annotated[bool, Parameter(negative="")] = False,
    root: Annotated[Path, A_FOLDER] = Path(),
    files: Annotated[Path | None, Parameter(metavar="FOLDER")] = None,
    options: StoreOptions = StoreOptions(),
) -> None:
    """Make a session that shares the history of another one up to a call.

    The fork refers to the entries of the other session, its origin, and has the same tags. What its
    origin has done is not repeated if the call is the same, in a reply of the same name, or has an equal key.

    Example: `handrail sessions fork night-desk --at call-2 --as what-if`

    Args:
        session: The id of the session, as `sessions list` shows it.
        at: The last call that the fork shares, as REPLY/CALL; `sessions show --format json` has both. Else all.
        as_: The id of the fork; else a random one.
        new_keys: Let calls of the fork repeat what its origin has done, as in a test.
        root: The folder that the session works on, with its journal beside it; else the current one.
        files: Copy that folder to this new one, as it was at the call. Without it, both work on the same files.
        options: The store and the output format.
    """
    with options.open(writing=True) as store:
        row = find_session(store, session)
        head = row.head if at is None else _end_of_call(store, session, at)
        if files is not None:
            with HostFilesystem(root) as filesystem:
                copy_files(store, row, head, {filesystem: files})
        fork = create_fork_of_row(store, row, as_ or uuid.uuid4().hex, head, new_keys=new_keys)
        if options.as_json:
            Screen().json(SESSION.json(StoredSession(store, fork, frozenset())))
            return
    count = count_noun(head, "entry", "entries")
    Screen().say(f"Session {fork.session_id} starts with the first {count} of {session}.")


def _end_of_call(store: Store, session: str, at: str) -> int:
    ref = CallRef.parse(at)
    number = store.record_of_call(session, CallRef(ref.reply or None, ref.call_id).storable)
    if number is None:
        calls = {
            CallRef(one.reply or None, one.call_id): None
            for one in store.entries(session)
            if one.call_id == ref.call_id
        }
        names = ", ".join(str(call) for call in calls if not ref.reply)
        where = f"it is ambiguous, name one of {names}" if "," in names else names and f"there is {names}"
        where = where or f"handrail sessions show {session} --format json lists them"
        raise SessionError(f"session {session} has no record of a call {shorten(at, _MOST_OF_NAME)}; {where}")
    return number
