"""Templates, and what they show of values: everything that a model, a tool or a person has written is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from handrail.operations.sessions import name_call
from handrail.process import process_in_words
from handrail.readable import clean, clean_lines, fit_text, format_duration, format_json, format_when
from handrail.redaction import redacted
from handrail.serde.formatting import count_noun
from handrail.session.calls import CallRef
from handrail.store.protocol import EffectRow
from handrail.transcript import TranscriptBreak, TranscriptCall, TranscriptMessage
from handrail.transcript.messages import CallOutcome
from handrail.transcript.wording import OUTCOMES, break_text, call_text, outcome_text, speaker_text, wait_text
from handrail.view.compare import field_text
from handrail.view.run_page import CallDetails, CallView, PagePart, Phase, PhaseBar, calls_in

if TYPE_CHECKING:
    from handrail.view.actions import PageActions

LONGEST_TEXT: Final = 20_000
"""The most characters of one text on a page; of the rest the number is said."""

PHASES: Final[Mapping[Phase, str]] = {
    "turn": "waits for its turn",
    "approval": "waits for an approval",
    "handler": "its handler runs",
    "commit": "checks and commit",
}
"""What a call does, in words."""

_WITH_REASON: Final = frozenset[CallOutcome]({"refused", "failed", "unknown", "unapplied"})
_MOST_OF_NOTE: Final = 240
_MINUTES: Final = 120  # seconds from which on a moment is said in minutes and hours

_WORDS: Final[Mapping[CallOutcome, str]] = {**OUTCOMES, "open": "no record yet"}
# It may run at this moment, or come later.

FindDetails = Callable[[CallView], CallDetails]
"""Finds the details of a call."""


class Look(NamedTuple):
    """How calls are shown.

    Attributes:
        find_details: finds what stands below each call; `None` if that is loaded when the call is opened.
        trace_url: the address of a span, with `{trace}` and `{span}`; empty for none.
        most: the most characters of one text.
        actions: makes the forms; `None` for pages without any.
    """

    find_details: FindDetails | None = None
    trace_url: str = ""
    most: int = LONGEST_TEXT
    actions: PageActions | None = None

    def trace_link(self, trace: str) -> str:
        """The address of the span of a call; empty if there is none."""
        names = trace.partition("-")
        return self.trace_url.replace("{trace}", names[0]).replace("{span}", names[2]) if trace else ""


@cache
def templates() -> Environment:
    """The environment of the templates."""
    environment = Environment(
        loader=PackageLoader("handrail.view"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "brief": _brief,
        "calls": partial(count_noun, noun="call"),
        "break_text": break_text,
        "call_name": _call_name,
        "call_query": _call_query,
        "diff_class": _diff_class,
        "duration": format_duration,
        "effect_facts": _effect_facts,
        "field_text": field_text,
        "json": partial(format_json, indent=2),
        "long": shorten_text,
        "moment": format_when,
        "name_call": name_call,
        "note": _note,
        "outcome": _outcome,
        "place": _place,
        "query": _query,
        "seconds": _seconds,
        "finding": _finding,
        "speaker": speaker_text,
        "times": _times,
        "wait_text": wait_text,
    }
    environment.filters.update(filters)
    values: dict[str, Any] = {"phases": [*PHASES.items()], "kind": _kind}
    environment.globals.update(values)
    return environment


def render(name: str, **values: object) -> str:
    """A template of this package with values."""
    return templates().get_template(name).render(values)


def render_part(part: PagePart, look: Look = Look()) -> Markup:  # noqa: B008 - it is a constant
    """A part of a page."""
    html: Markup = _macros().show(part, look)
    return html


def render_call(view: CallView, details: CallDetails, look: Look) -> Markup:
    """What stands below a call."""
    html: Markup = _macros().details(view, details, look)
    return html


def count_outcomes(parts: Iterable[PagePart]) -> Counter[CallOutcome]:
    """How many calls have come to which outcome."""
    return Counter(view.call.outcome for view in calls_in(parts))


def render_status(outcomes: Mapping[CallOutcome, int], *, is_held: bool) -> Markup:
    """How many calls of a session have come to which outcome."""
    counts = [(outcome, words, outcomes[outcome]) for outcome, words in _WORDS.items() if outcomes.get(outcome)]
    html: Markup = _macros().status(counts, sum(outcomes.values()), is_held)
    return html


def shorten_text(text: str, most: int = LONGEST_TEXT) -> str:
    """A text that may be shown, up to so many characters; of a longer one the length and the digest are said."""
    text = clean_lines(_hide(text))
    rest = len(text) - most
    if rest <= 0:
        return text
    name = sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{text[:most]}\n… {rest:,} more characters; SHA-256 of all {name}…"


@cache
def _macros() -> Any:  # noqa: ANN401 - a module of Jinja has any names
    return templates().get_template("parts.html").module


def _kind(part: PagePart) -> str:
    if isinstance(part, TranscriptMessage):
        return "message"
    return "break" if isinstance(part, TranscriptBreak) else "calls"


def _printable(value: object) -> object:
    # Ids and names of tools come from models, too: what would turn the direction of text is written as an escape.
    return value if isinstance(value, Markup) or not isinstance(value, str) else clean_lines(_hide(value))


def _hide(text: str) -> str:
    # JSON writes the end of a line as two characters, so that the letter n would stand before a secret.
    return redacted("\\n".join(map(redacted, text.split("\\n")))) if "\\n" in text else redacted(text)


def _query(view: CallView) -> str:
    return urlencode({"session": view.session_id, "call": view.id})


def _call_query(call: CallRef, session_id: str) -> str:
    return urlencode({"session": session_id, "call": f"{session_id}/{call.key}"})


def _call_name(call: CallRef) -> str:
    # The command line knows a call that a handler has made by its id alone.
    return str(call) if call.parent is None else f"{call.call_id} of {_call_name(call.parent)}"


def _brief(call: TranscriptCall) -> str:
    return call_text(call).removeprefix(call.tool)


def _outcome(call: TranscriptCall) -> str:
    if call.outcome == "open":
        return _WORDS["open"]
    return outcome_text(replace(call, seconds=None, wait=None, child="", owner=""))


def _note(call: TranscriptCall) -> str:
    # What a reader looks for first stands in the row: why a call has no result, and who was waited for.
    wait = "" if call.wait is None else wait_text(call.wait)
    words = redacted(call.content).split() if call.outcome in _WITH_REASON else ()
    why = fit_text(clean(" ".join(words)), _MOST_OF_NOTE)
    if call.has_effect and call.outcome != "unknown":  # the ledger may know more by now
        why = why and f"when it ended: {why}"
    owner = f"claimed by {call.owner}" if call.outcome == "running" and call.owner else ""
    return " · ".join(filter(None, (wait, owner, why)))


def _diff_class(line: str) -> str:
    return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "")


def _times(bars: Sequence[PhaseBar]) -> str:
    return ", ".join(f"{PHASES[bar.phase]} {_seconds(bar.seconds)}" for bar in bars)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds >= _MINUTES:
        return format_duration(timedelta(seconds=seconds))
    milliseconds = f"{1_000 * seconds:.1f}".removesuffix(".0")
    return f"{milliseconds} ms" if seconds < 1 else f"{seconds:.1f} s"


def _place(window: tuple[float, float]) -> str:
    begin, length = window
    return f"+{_seconds(begin)}, for {_seconds(length)}"


def _finding(view: CallView, row: EffectRow | None) -> str:
    # The record of a call says what was known when it ended.
    at = view.call.at
    if row is None or row.completed_at is None or at is None or view.call.outcome not in _WITH_REASON:
        return ""
    return f"Its effect was settled: {': '.join(filter(None, (row.status, row.note)))}" if row.completed_at > at else ""


def _effect_facts(row: EffectRow, view: CallView) -> Iterator[tuple[str, Any]]:
    yield "key", row.key
    yield "status", row.status
    yield "fence", row.fence
    yield "claimed", format_when(row.created_at)
    if row.lease_until is not None:
        yield "lease until", format_when(row.lease_until)
    if row.completed_at is not None:
        yield "settled", format_when(row.completed_at)
    if row.applied_at is not None:
        yield "applied", format_when(row.applied_at)
    owner, is_own = row.owner, (row.owner.session_id, row.owner.call) == (view.session_id, view.call.call.storable)
    other = " in ".join(filter(None, (_call_name(owner.call), owner.session_id)))
    process = process_in_words(owner.process)
    yield "owner", ", ".join(filter(None, ("this call" if is_own else f"another call: {other}", process)))
    if row.note:
        yield "note", redacted(row.note)
