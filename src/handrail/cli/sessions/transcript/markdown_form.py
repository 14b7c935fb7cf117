"""A transcript as Markdown. No text of a model or a tool can change the structure of the document.

| text | how it is written |
|---|---|
| of a message, without a fence | a quotation; headings, HTML, images and links in it are escaped |
| of a message, with a fence | in a fence that is longer than every one within it |
| arguments, results, JSON | likewise |
| names, labels of calls, reasons | code spans, longer than every run of backticks within them |

Whether a line is inside a fence cannot be determined line by line, because lists and quotations may contain fences. A
text that has one is therefore fenced as a whole.
"""

from __future__ import annotations

import re

from handrail.cli.cells import cut_middle
from handrail.cli.screen import Screen, clean, format_time, format_when
from handrail.cli.sessions.transcript.words import (
    ItemOrder,
    break_text,
    call_label,
    call_text,
    calls_heading,
    indented_json,
    plain_lines,
    speaker_text,
)
from handrail.session.persistence.protocol import SessionRow
from handrail.transcript import MessageBlock, TranscriptCall, TranscriptItem, TranscriptMessage

_ROOM = 120
_MOST_OF_DATA = 2_000
_RUN_OF_BACKTICKS = re.compile("`+")
_FENCE = re.compile("`{3,}|~{3,}")
_HEADING = re.compile(r"^([ \t>*+\-\d.)]*)(#{1,6})(?=[ \t]|$)", re.MULTILINE)
_UNDERLINE = re.compile(r"^([ \t>]*)([=\-])(?=[=\- \t]*$)", re.MULTILINE)
_INLINE = re.compile(r"[\\`*_\[\]<>&~!|]")
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|!(?=\[)|(?<=\])[(:\[]|&(?=#?\w+;)")


class MarkdownTranscript:
    """Prints a transcript as Markdown.

    Args:
        screen: where to.
        full: whether the arguments and the result are printed below each call.
    """

    __slots__ = ("_full", "_order", "_screen")

    def __init__(self, screen: Screen, *, full: bool) -> None:
        self._screen = screen
        self._full = full
        self._order = ItemOrder()

    def begin(self, row: SessionRow) -> None:
        """Print the title, and what is known of the session."""
        self._screen.raw(f"# Session {code_span(row.session_id)}\n")
        if row.parent is not None:
            self._screen.raw(f"- parent: {code_span(row.parent)}")
        for name, value in sorted(row.tags.items()):
            self._screen.raw(f"- tag {code_span(f'{name}={value}')}")
        self._screen.raw(f"- created: {format_time(row.created_at)} UTC")

    def end(self) -> None:
        """Print nothing."""

    def write(self, item: TranscriptItem) -> None:
        """Print an item."""
        place = self._order.advance(item)
        if isinstance(item, TranscriptCall):
            if place in {"first", "new"}:
                self._screen.raw(f"\n## {code_span(calls_heading(item.conversation))}")
            if place != "after call":  # a list begins
                self._screen.raw("")
            self._call(item, "")
        elif isinstance(item, TranscriptMessage):
            when = f", {format_when(item.at)}" if item.at is not None else ""
            self._screen.raw(f"\n## {code_span(speaker_text(item))}{when}")
            for block in item.blocks:
                self._block(block)
        else:
            self._screen.raw(f"\n---\n\n{escaped_line(break_text(item))}")

    def _block(self, block: MessageBlock) -> None:
        if block.kind == "data":
            text = block.text if self._full else cut_middle(clean(block.text), _MOST_OF_DATA)
            self._screen.raw(f"\n{fenced(text, 'json')}")
            return
        if block.kind != "text":
            self._screen.raw(f"\n*{block.kind}*")
        self._screen.raw(f"\n{quoted(block.text)}")

    def _call(self, call: TranscriptCall, margin: str) -> None:
        said = call_text(call, full=self._full)
        reason = f": {code_span(said.reason)}" if said.reason else ""
        outcome = escaped_line(said.outcome)
        self._screen.raw(f"{margin}- {code_span(call_label(call, room=_ROOM))} {outcome}{reason}")
        inner = f"{margin}  "
        if self._full:
            texts = [fenced(indented_json(call.arguments), "json"), *([fenced(call.content)] if call.content else [])]
            for text in texts:
                self._screen.raw("\n" + "\n".join(f"{inner}{line}".rstrip() for line in text.split("\n")))
            self._screen.raw("")
        for nested in call.nested:
            self._call(nested, inner)


def code_span(text: str) -> str:
    """Text as a code span on one line."""
    line = clean(text)
    longest = max((len(run) for run in _RUN_OF_BACKTICKS.findall(line)), default=0)
    ticks = "`" * (longest + 1)
    # A space on both sides is removed by the reader; it keeps the ticks apart from those of the text.
    return f"{ticks} {line} {ticks}" if longest or not line.strip() else f"{ticks}{line}{ticks}"


def fenced(text: str, language: str = "text") -> str:
    """Text in a fence that is longer than every run of backticks within it."""
    longest = max((len(run) for run in _RUN_OF_BACKTICKS.findall(text)), default=0)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}{language}\n{plain_lines(text.strip(chr(10)))}\n{fence}"


def quoted(text: str) -> str:
    """The text of a message as a quotation, or in a fence if it has one itself."""
    shown = plain_lines(text.strip("\n").replace("\r\n", "\n"))
    if _FENCE.search(shown):
        return fenced(shown)
    return "\n".join(f"> {line}".rstrip() for line in escaped_text(shown).split("\n"))


def escaped_line(text: str) -> str:
    """Text on one line, within a line of the document, in which nothing is markup."""
    return _INLINE.sub(lambda found: f"\\{found.group()}", clean(text))


def escaped_text(text: str) -> str:
    """Text whose emphasis and lists are kept, and in which headings, HTML, images and links are escaped."""
    # An escape before what is escaped below would turn the backslash of that into text.
    shown = re.sub(r"\\(?=[<!\[(:&#=\-\\])", r"\\\\", text)
    shown = _MARKUP.sub(lambda found: f"\\{found.group()}", shown)
    shown = _HEADING.sub(r"\1\\\2", shown)
    return _UNDERLINE.sub(r"\1\\\2", shown)
