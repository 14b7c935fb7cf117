"""A transcript as JSON."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handrail.cli.sessions.transcript.json_form import JsonTranscript
from tests.cli.sessions.transcript.items import CONTROLS, EVERYTHING, HOSTILE, called, printed, said

DOCUMENT = partial(JsonTranscript, lines=False)
LINES = partial(JsonTranscript, lines=True)


def test_it_is_one_document() -> None:
    """With what is known of the session, and the items in order; also without any."""
    document = json.loads(printed(DOCUMENT, EVERYTHING))
    assert (document["session_id"], document["parent"], document["tags"]) == ("desk", "before", {"shift": "late"})
    assert [item["type"] for item in document["conversation"]] == [
        *["message"] * 3,
        *["call"] * 16,
        "message",
        *["restarted"] * 3,
        *["removed"] * 2,
    ]
    assert json.loads(printed(DOCUMENT, []))["conversation"] == []


def test_or_an_object_a_line() -> None:
    """The first is the session; the others are the items of the document."""
    first, *others = map(json.loads, printed(LINES, EVERYTHING).splitlines())
    assert (first["type"], first["entries"]) == ("session", 7)
    assert others == json.loads(printed(DOCUMENT, EVERYTHING))["conversation"]


def test_a_call_has_all_that_is_known_of_it() -> None:
    """And the calls within it."""
    (call,) = json.loads(printed(DOCUMENT, [EVERYTHING[3]]))["conversation"]
    assert call == {
        "type": "call",
        "speaker": "agent",
        "name": "clerk",
        "reply": "r1",
        "call_id": "c1",
        "tool": "pay",
        "arguments": {"order": "A-17", "cents": 4990},
        "outcome": "ok",
        "rolled_back": False,
        "replayed": False,
        "content": "A-17 is paid",
        "seconds": 0.2,
        "at": "2026-01-05T20:00:00+00:00",
        "wait": {"since": "2026-01-05T20:00:00+00:00", "seconds": 10800.0, "by": "anna", "approved": True},
        "owner": "",
        "effect_key": None,
        "child_session": None,
        "nested": [],
    }
    (parent,) = json.loads(printed(DOCUMENT, [called(nested=(called(outcome="failed"),))]))["conversation"]
    assert [(inner["outcome"], inner["rolled_back"]) for inner in parent["nested"]] == [("failed", True)]
    (message,) = json.loads(printed(DOCUMENT, [said("Hi.", role="user")]))["conversation"]
    assert message == {
        "type": "message",
        "speaker": "loop",
        "name": "",
        "role": "user",
        "at": "2026-01-05T20:00:00+00:00",
        "blocks": [{"kind": "text", "text": "Hi."}],
    }


@given(text=st.sampled_from(HOSTILE) | st.text())
def test_every_text_is_whole(text: str) -> None:
    """And nothing that a terminal obeys is printed."""
    for make in (DOCUMENT, LINES):
        shown = printed(make, [said(text), called(arguments={text: text}, content=text)])
        assert not CONTROLS.search(shown)
        items: list[Any] = [json.loads(line) for line in shown.splitlines()[1:]] if make is LINES else []
        message, call = items or json.loads(shown)["conversation"]
        assert message["blocks"] == [{"kind": "text", "text": text}]
        assert (call["arguments"], call["content"]) == ({text: text}, text)
