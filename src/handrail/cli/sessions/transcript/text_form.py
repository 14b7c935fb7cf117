"""A transcript as text: for a terminal of any width, and for a pipe.

A message is a heading with its text below, a call one line, continued if it does not fit. On a terminal a long text is
shortened, and the transcript reports by how much; in a pipe it is whole.
"""

from __future__ import annotations

from handrail.cli.cells import NO_BREAK, cut_middle, width_of, wrap
from handrail.cli.screen import Screen, clean
from handrail.cli.sessions.transcript.words import (
    OUTCOME_STYLES,
    ItemOrder,
    break_text,
    call_label,
    call_text,
    calls_heading,
    heading,
    indented_json,
    plain_lines,
)
from handrail.serde.formatting import count_noun
from handrail.session.persistence.protocol import SessionRow
from handrail.transcript import (
    MessageBlock,
    TranscriptBreak,
    TranscriptCall,
    TranscriptItem,
    TranscriptMessage,
)

MOST_LINES = 40
"""The most lines of one text on a terminal, unless all are asked for."""

_INDENT = 2
_TAB = 4
_ROOM_IN_PIPE = 120
_MOST_OF_DATA = 200


class TextTranscript:
    """Prints a transcript as text.

    Args:
        screen: where to.
        full: whether texts and reasons are whole on a terminal, as they are in a pipe, and the arguments and the result
            are printed below each call.
    """

    __slots__ = ("_full", "_on_terminal", "_order", "_screen", "_width")

    def __init__(self, screen: Screen, *, full: bool) -> None:
        self._screen = screen
        self._full = full
        self._order = ItemOrder()
        self._on_terminal = screen.out.is_terminal
        self._width = _ROOM_IN_PIPE

    def begin(self, row: SessionRow) -> None:
        """Print nothing: the items say what there is."""

    def end(self) -> None:
        """Print nothing."""

    def write(self, item: TranscriptItem) -> None:
        """Print an item."""
        if self._on_terminal:  # asked for once, and not for each line
            self._width = self._screen.out.width
        place = self._order.advance(item)
        if place == "new":
            self._screen.raw("")
        if isinstance(item, TranscriptBreak):
            self._line(break_text(item), 0, "dim")
        elif isinstance(item, TranscriptMessage):
            self._message(item)
        else:
            if place in {"first", "new"}:
                self._line(calls_heading(item.conversation), 0, "bold")
            self._call(item, _INDENT)

    def _message(self, message: TranscriptMessage) -> None:
        self._line(heading(message), 0, "bold")
        for block in message.blocks:
            self._block(block)

    def _block(self, block: MessageBlock) -> None:
        style = "dim" if block.kind in {"thinking", "data"} else ""
        if block.kind == "data":
            text = clean(block.text)
            self._line(text if self._full else cut_middle(text, _MOST_OF_DATA), _INDENT, style)
            return
        # The kind is stated in words, because a pipe has no styles.
        text = block.text if block.kind == "text" else f"({block.kind}) {block.text}"
        self._text(text, _INDENT, style)

    def _text(self, text: str, indent: int, style: str = "") -> None:
        """A text of several lines; on a terminal shortened, unless it is asked for whole."""
        shown = plain_lines(text.strip("\n").replace("\r\n", "\n"))
        lines = shown.split("\n")
        if self._on_terminal:
            # A tab would move the cursor by a distance that wrapping does not know.
            lines = wrap(shown.expandtabs(_TAB), max(self._width - indent, 2))
            more = len(lines) - MOST_LINES
            if more > 0 and not self._full:
                left = count_noun(more + 1, "more line")
                lines = [*lines[: MOST_LINES - 1], f"… {left}; --full shows all"]
        self._screen.lines(lines, indent=indent, style=style)

    def _line(self, text: str, indent: int, style: str) -> None:
        """A text that is one line, continued on a terminal that is too narrow."""
        shown = clean(text)
        lines = wrap(shown, max(self._width - indent, 2)) if self._on_terminal else [shown]
        self._screen.lines(lines, indent=indent, style=style)

    def _call(self, call: TranscriptCall, indent: int) -> None:
        said, style = call_text(call, full=self._full or not self._on_terminal), OUTCOME_STYLES.get(call.outcome, "")
        outcome = clean(said.outcome)
        label = call_label(call, room=self._width - indent - width_of(outcome) - 1)
        reason = f": {clean(said.reason)}" if said.reason else ""
        if self._on_terminal:
            # The outcome is not divided between two lines, if it fits one.
            together = outcome.replace(" ", NO_BREAK) if width_of(outcome) < self._width - indent else outcome
            room = self._width - indent
            first, *others = wrap(f"{label} {together}{reason}", max(room - _INDENT, 2), first=room)
            self._screen.lines([first], indent=indent, style=style)
            self._screen.lines(others, indent=indent + _INDENT, style=style)
        else:
            self._screen.lines([f"{label} {outcome}{reason}"], indent=indent)
        if self._full:
            self._line("arguments:", indent + _INDENT, "dim")
            self._text(indented_json(call.arguments), indent + 2 * _INDENT)
            if call.content:
                self._line("result:", indent + _INDENT, "dim")
                self._text(call.content, indent + 2 * _INDENT)
        for nested in call.nested:
            self._call(nested, indent + _INDENT)
