"""A transcript as one HTML file."""

from __future__ import annotations

from functools import partial
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from handrail.cli.sessions.transcript.html_form import HtmlTranscript
from handrail.cli.sessions.transcript.words import plain_lines
from handrail.transcript import MessageBlock, TranscriptItem, TranscriptMessage
from tests.cli.sessions.transcript.items import EVERYTHING, HOSTILE, LOOP, called, printed, said
from tests.wording import Wording

HTML = partial(HtmlTranscript, full=False)
FULL = partial(HtmlTranscript, full=True)

_TAGS = set(
    "html head meta title style body main h1 h2 dl dt dd section time pre details summary div code span p".split()  # noqa: SIM905 - names
)
_ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "dir"}
_VOID = {"meta"}


class Page(HTMLParser):
    """What a document consists of; its tags have to be closed in order.

    Attributes:
        tags: the tags, in order.
        attributes: the names of all attributes.
        texts: the texts between the tags.
    """

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(document)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def test_everything_as_html(wording: Wording) -> None:
    """What the body says; the head is the same for all."""
    assert printed(HTML, EVERYTHING).partition("<body>")[2] == wording


def test_calls_in_full(wording: Wording) -> None:
    """With the arguments and what the model reads, folded."""
    items: list[TranscriptItem] = [said("I pay."), called(nested=(called(content=""),))]
    assert printed(FULL, items).partition("<main>")[2] == wording


def test_the_file_loads_nothing_and_runs_nothing() -> None:
    """Its own policy forbids it, and it names no address."""
    document = printed(HTML, EVERYTHING)
    assert "default-src 'none'" in document
    page = Page(document)
    assert set(page.tags) <= _TAGS
    assert page.attributes <= _ATTRIBUTES
    assert not {"http://", "https://", "url(", "@import", "<script"} & set(document.split())
    assert "color-scheme: light dark" in document


@given(text=st.sampled_from(HOSTILE) | st.text(st.sampled_from("<>&\"'/=!- abscript\n")) | st.text())
def test_no_text_becomes_markup(text: str) -> None:
    """The document has the tags that it has with a harmless text, and the text is in it as it is."""
    for make in (HTML, FULL):
        page, harmless = (Page(_document(make, each)) for each in (text, "x"))
        assert page.tags == harmless.tags
        assert page.attributes == harmless.attributes
        shown = plain_lines(text.strip("\n").replace("\r\n", "\n"))
        assert shown in page.texts or not shown
        assert not shown or page.texts.count(shown) >= 1


def _document(make: partial[HtmlTranscript], text: str) -> str:
    call = called(tool=text, arguments={text: text}, outcome="failed", content=f"x{text}", owner=text, child=text)
    message = TranscriptMessage(
        conversation=LOOP._replace(speaker="prompt", name=text),
        role=text,
        blocks=tuple(MessageBlock(kind, text) for kind in ("text", "thinking", "refusal", "data")),
    )
    return printed(make, [said(text), message, call, called(arguments=text, nested=(call,))])
