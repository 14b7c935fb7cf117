"""A transcript as one HTML file: without scripts, without anything from a network, in light and dark.

All text is escaped. A policy in the file forbids scripts, images and every other resource, so that even a fault here
would load nothing.
"""

from __future__ import annotations

from html import escape

from handrail.cli.cells import cut_middle
from handrail.cli.screen import Screen, clean, format_time
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
_ROLES = frozenset({"user", "assistant", "system", "developer", "tool"})

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --quiet: #57606a; --good: #1a7f37; --bad: #cf222e; --wait: #9a6700;
  --panel: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --line: #30363d; --quiet: #8b949e; --good: #3fb950; --bad: #f85149;
  --wait: #d29922; --panel: #161b22; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 0 0 .4rem; overflow-wrap: anywhere; }
time, dt, summary, .kind, .break { color: var(--quiet); font-weight: normal; }
p.kind { margin: .2rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; }
dd { margin: 0; overflow-wrap: anywhere; }
section { border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1rem; margin: 1rem 0 .4rem; }
section.user { background: var(--panel); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0; font: inherit; unicode-bidi: isolate; }
pre.data, code { font: .85rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
.call { border-left: 3px solid var(--line); margin: .3rem 0 .3rem 1rem; padding-left: .6rem; }
.ok { border-color: var(--good); }
.refused, .failed, .unknown, .unapplied { border-color: var(--bad); }
.running, .waiting { border-color: var(--wait); }
.unknown > .outcome, .failed > .outcome, .refused > .outcome, .unapplied > .outcome { color: var(--bad); }
"""


class HtmlTranscript:
    """Prints a transcript as one HTML file.

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
        """Print the head, and what is known of the session."""
        title = f"Session {_line(row.session_id)}"
        fields = [("parent", row.parent or ""), *((f"tag {name}", value) for name, value in sorted(row.tags.items()))]
        fields = [
            *((name, value) for name, value in fields if value),
            ("created", f"{format_time(row.created_at)} UTC"),
        ]
        listed = "".join(f"<dt>{_line(name)}</dt><dd>{_line(value)}</dd>" for name, value in fields)
        self._screen.raw(
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>{listed}</dl>\n<main>"
        )

    def end(self) -> None:
        """Close the document."""
        self._screen.raw("</main>\n</body>\n</html>")

    def write(self, item: TranscriptItem) -> None:
        """Print an item."""
        place = self._order.advance(item)
        if isinstance(item, TranscriptCall):
            if place in {"first", "new"}:
                self._screen.raw(f"<h2>{_line(calls_heading(item.conversation))}</h2>")
            self._screen.raw(self._call(item))
        elif isinstance(item, TranscriptMessage):
            # The role is the word of a provider, so only known ones become a class.
            role = item.role if item.role in _ROLES else "other"
            time = "" if item.at is None else f" <time>{format_time(item.at)} UTC</time>"
            blocks = "".join(map(self._block, item.blocks))
            who = _line(speaker_text(item))
            self._screen.raw(f'<section class="{role}"><h2>{who}{time}</h2>{blocks}</section>')
        else:
            self._screen.raw(f'<p class="break">{_line(break_text(item))}</p>')

    def _block(self, block: MessageBlock) -> str:
        if block.kind == "data":
            text = block.text if self._full else cut_middle(clean(block.text), _MOST_OF_DATA)
            return _data(text)
        text = f'<pre dir="auto">{_lines(block.text)}</pre>'
        if block.kind == "thinking":
            return f'<details><summary class="kind">thinking</summary>{text}</details>'
        return text if block.kind == "text" else f'<p class="kind">{block.kind}</p>{text}'

    def _call(self, call: TranscriptCall) -> str:
        said = call_text(call, full=self._full)
        label = escape(call_label(call, room=_ROOM))
        inner = "".join(map(self._call, call.nested))
        if self._full:
            result = _data(call.content) if call.content else ""
            texts = f"<summary>arguments and result</summary>{_data(indented_json(call.arguments))}{result}"
            inner = f"<details>{texts}</details>{inner}"
        outcome = f'<span class="outcome">{_line(said.line)}</span>'
        return f'<div class="call {call.outcome}"><code>{label}</code> {outcome}{inner}</div>'


def _data(text: str) -> str:
    return f'<pre class="data" dir="ltr">{_lines(text)}</pre>'


def _line(text: str) -> str:
    """Text of one line, escaped."""
    return escape(clean(text))


def _lines(text: str) -> str:
    """Text of several lines, escaped; control characters are visible, so that none reverses the text direction."""
    # The first line end after <pre> is not shown by a browser, so there is none.
    return escape(plain_lines(text.strip("\n").replace("\r\n", "\n")))
