"""A transcript as Markdown, read by a parser of CommonMark."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from handrail.cli.sessions.transcript.markdown_form import MarkdownTranscript, code_span, fenced
from handrail.transcript import MessageBlock, TranscriptMessage
from tests.cli.sessions.transcript.items import EVERYTHING, HOSTILE, LOOP, called, printed, said
from tests.wording import Wording

MARKDOWN = partial(MarkdownTranscript, full=False)
FULL = partial(MarkdownTranscript, full=True)

_CONTAINERS = {f"{kind}_{edge}" for kind in ("blockquote", "bullet_list", "paragraph") for edge in ("open", "close")}
_FORBIDDEN = {"html_block", "html_inline", "link_open", "image"}


def tokens(text: str) -> list[Token]:
    """What a document consists of, inner tokens included."""
    blocks = MarkdownIt("commonmark").parse(text)
    return [token for block in blocks for token in (block, *(block.children or ()))]


def test_everything_as_markdown(wording: Wording) -> None:
    """A heading for each message, and an item of a list for each call."""
    assert printed(MARKDOWN, EVERYTHING) == wording


def test_calls_in_full(wording: Wording) -> None:
    """With the arguments and what the model reads, in fences."""
    assert printed(FULL, [said("I pay."), called(nested=(called(content=""),))]) == wording


def test_formatted_text_stays_formatted() -> None:
    """Emphasis, lists and code spans of a model are Markdown already."""
    kinds = {token.type for token in tokens(printed(MARKDOWN, [said("It is **done**:\n\n- one\n- `two`")]))}
    assert {"strong_open", "bullet_list_open", "code_inline"} <= kinds


def test_text_with_a_fence_is_fenced_whole() -> None:
    """A parser sees the same text."""
    text = "See:\n````python\n```\nx = 1\n````\n# x"
    (fence,) = [token for token in tokens(printed(MARKDOWN, [said(text)])) if token.type == "fence"]
    assert fence.content == f"{text}\n"


_TEXTS = st.sampled_from(HOSTILE) | st.text(st.sampled_from("#`~<>[]()!\\&;:-=*_ \t\n/abx1.?'\"")) | st.text()


@given(text=_TEXTS)
def test_no_text_changes_the_document(text: str) -> None:
    """It has the headings, lists and fences that it has with a harmless text, and no HTML, link or image."""
    for make in (MARKDOWN, FULL):
        hostile, harmless = (_document(make, each) for each in (text, "x"))
        found = tokens(hostile)
        assert not _FORBIDDEN & {token.type for token in found}
        assert _headings(found) == _headings(tokens(harmless)) == 5
        outer = {token.type for token in MarkdownIt("commonmark").parse(hostile) if token.level == 0}
        assert outer <= {"fence", "heading_open", "heading_close", "inline", *_CONTAINERS}
        # The last message is one of its own: nothing before it was left open.
        assert found[-1].type in {"blockquote_close", "fence"}
        assert any(token.content == "The end." for token in found)


def _document(make: partial[MarkdownTranscript], text: str) -> str:
    call = called(tool=text, arguments={text: text}, outcome="failed", content=text, owner=text, child=text)
    message = TranscriptMessage(
        conversation=LOOP._replace(speaker="prompt", name=text),
        role=text,
        blocks=tuple(MessageBlock(kind, text) for kind in ("text", "thinking", "refusal", "data")),
    )
    return printed(make, [said(text), message, call, called(arguments=text, nested=(call,)), said("The end.")])


def _headings(found: list[Token]) -> int:
    return sum(token.type == "heading_open" for token in found)


@pytest.mark.parametrize("text", ["", " ", "a", "`", "``", "`a", "a`", "` `", "a\nb"])
def test_a_code_span_holds_any_text(text: str) -> None:
    """On one line."""
    found = [token for token in tokens(f"x {code_span(text)} y") if token.type == "code_inline"]
    assert [token.content.strip() for token in found] == [text.replace("\n", "\\n").strip()]


@given(text=st.text(st.sampled_from("`~ab\n")))
def test_a_fence_holds_any_text(text: str) -> None:
    """As it is, without empty lines around it."""
    (fence,) = tokens(fenced(text))
    stripped = text.strip("\n")
    assert fence.content == f"{stripped}\n"
