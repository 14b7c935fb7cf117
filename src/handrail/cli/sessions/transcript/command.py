"""The options of `handrail sessions show --conversation`, and the command itself."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import sleep
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from handrail.cli.ledger.show import CONVERSATION
from handrail.cli.options import ShowOptions
from handrail.cli.paths import os_error_text
from handrail.cli.screen import Screen
from handrail.cli.sessions.transcript.html_form import HtmlTranscript
from handrail.cli.sessions.transcript.json_form import JsonTranscript
from handrail.cli.sessions.transcript.markdown_form import MarkdownTranscript
from handrail.cli.sessions.transcript.text_form import TextTranscript
from handrail.cli.sessions.transcript.words import TranscriptWriter
from handrail.errors import SessionError, UnknownTypeError
from handrail.session.conversation_parts import ConversationPart, Speaker
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.transcript import TranscriptItem, TranscriptReader
from handrail.transcript.following import end_of_transcript, follow_session
from handrail.transcript.reading import entries_in_pages

_POLL_SECONDS = 0.5


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOptions:
    """Whether to show the conversation of a session, and what of it.

    Attributes:
        conversation: whether to show it.
        last: how many messages, each with its calls; `None` for all.
        speaker: whose conversation; `None` for all.
        agent: the agent or prompt whose conversation it is; `None` for all.
        follow: whether to continue as the run does.
        output: the file to write to; `None` for standard output.
    """

    conversation: Annotated[
        bool, Parameter(help="Show who said what, and each call with its outcome, instead of the entries.")
    ] = False
    last: Annotated[
        int | None, Parameter(metavar="N", help="Only the last N messages of the conversation, with their calls.")
    ] = None
    speaker: Annotated[
        Speaker | None,
        Parameter(help="Only the conversation of the program's own `loop`, of an `agent`, or of a `prompt`."),
    ] = None
    agent: Annotated[
        str | None, Parameter(metavar="NAME", help="Only the conversation of the agent or prompt of this name.")
    ] = None
    follow: Annotated[
        bool, Parameter(help="Show what is added until no process has the session open any more, or until Ctrl-C.")
    ] = False
    output: Annotated[
        Path | None, Parameter(metavar="FILE", help="Write the conversation to this file, which is replaced.")
    ] = None

    def check(self, options: ShowOptions) -> None:
        """Check the options, before the store is opened.

        Raises:
            CycloptsError: some of them do not fit together.
        """
        if not self.conversation:
            given = {"--last": self.last, "--speaker": self.speaker, "--agent": self.agent, "--output": self.output}
            needless = [name for name, value in given.items() if value is not None]
            needless += ["--follow"] if self.follow else []
            needless += [f"--format {options.format}"] if options.format in {"markdown", "html"} else []
            if needless:
                raise CycloptsError(msg=f"{needless[0]} needs --conversation")
        if self.last is not None and self.last < 1:
            raise CycloptsError(msg=f"--last is {self.last}; it must be 1 or more")
        if self.follow and options.format == "html":
            raise CycloptsError(msg="--follow cannot continue an HTML file; give --format markdown, json or table")

    def wants(self, item: TranscriptItem) -> bool:
        """Whether an item belongs to a conversation that is shown."""
        if self.speaker is None and self.agent is None:
            return True
        conversation = item.conversation
        return (
            conversation is not None
            and self.speaker in {None, conversation.speaker}
            and self.agent in {None, conversation.name}
        )


NO_CONVERSATION = ConversationOptions()
"""The defaults."""


def show_conversation(
    store: Store, row: SessionRow, how: ConversationOptions, options: ShowOptions, *, full: bool
) -> int:
    """Print the conversation of a session.

    Raises:
        CycloptsError: the output file cannot be written.
        SessionError: an agent or prompt is named that has no conversation in it.
        StoreError: the store cannot be read.
    """
    notes = Screen()
    count = 0
    _check_agent(store, row, how)
    with _output(how.output) as screen:
        writer = _writer(screen, how, options, full=full)
        writer.begin(row)
        reader, first = _begin(store, row, how)
        rest = (
            follow_session(store, row.session_id, reader, lambda: _pause(screen)) if how.follow else _rest(reader, row)
        )
        try:
            for item in chain(first, filter(how.wants, rest)):
                writer.write(item)
                count += 1
        except KeyboardInterrupt:
            # Of a run that is followed, the calls that have not ended are shown, too.
            for item in filter(how.wants, reader.finish() if how.follow else ()):
                writer.write(item)
            raise
        writer.end()
    # In the other formats standard output holds the conversation alone, unless that goes to a file.
    if options.format != "table" and how.output is None:
        return 0
    if not count:
        whose = " of its own" if how.speaker is None and how.agent is None else " that fits"
        notes.note(f"Session {row.session_id} has no conversation{whose}.")
    elif how.follow:
        notes.note(f"No process has session {row.session_id} open any more.")
    elif options.format == "table" and row.session_id in store.held_sessions():
        notes.note(f"A process has session {row.session_id} open; --follow shows what it adds.")
    return 0


def _check_agent(store: Store, row: SessionRow, how: ConversationOptions) -> None:
    """Check that the session has a conversation of the agent or prompt that is named, before anything is printed.

    Raises:
        SessionError: it has none, and none can be added while it is shown.
        StoreError: the store cannot be read.
    """
    if how.agent is None or how.follow:
        return
    names: dict[str, None] = {}
    for entry in entries_in_pages(store, row.session_id, row.head, CONVERSATION.name):
        try:
            parts: list[ConversationPart] = CONVERSATION.load(entry.items, entry.type_version)
        except (ValueError, UnknownTypeError):
            return  # reading it reports that
        names |= dict.fromkeys(part.name for part in parts)
        if how.agent in names:
            return
    named = ", ".join(name for name in names if name)
    known = f"those of: {named}" if named else "none of an agent or prompt"
    raise SessionError(f"session {row.session_id} has no conversation of {how.agent}; it has {known}")


def _begin(store: Store, row: SessionRow, how: ConversationOptions) -> tuple[TranscriptReader, list[TranscriptItem]]:
    """A reader, and the items before the place where it stands."""
    if how.last is None:
        return TranscriptReader(store, row), []
    return end_of_transcript(store, row, how.last, how.wants)


def _rest(reader: TranscriptReader, row: SessionRow) -> Iterator[TranscriptItem]:
    yield from reader.read(row.head)
    yield from reader.finish()


def _pause(screen: Screen) -> None:
    """Wait for more to be added, after what there is has become visible."""
    screen.out.file.flush()
    sleep(_POLL_SECONDS)


def _writer(screen: Screen, how: ConversationOptions, options: ShowOptions, *, full: bool) -> TranscriptWriter:
    if options.format == "json":
        return JsonTranscript(screen, lines=how.follow)
    if options.format == "markdown":
        return MarkdownTranscript(screen, full=full)
    if options.format == "html":
        return HtmlTranscript(screen, full=full)
    return TextTranscript(screen, full=full)


@contextmanager
def _output(path: Path | None) -> Generator[Screen]:
    """Where the conversation goes."""
    if path is None:
        yield Screen()
        return
    try:
        # Names and messages may contain characters that UTF-8 cannot encode.
        stream = path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")
    except OSError as error:
        raise CycloptsError(msg=f"--output {path} cannot be written: {os_error_text(error)}") from error
    with stream:
        yield Screen.of_file(stream)
