"""Messages of providers in pieces; `tests/providers/test_programs.py` reads what real SDKs make of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from handrail.session.calls import CallRef
from handrail.transcript import TranscriptCall
from handrail.transcript.messages import AnswerPiece, BlockPiece, MessagePiece, decode_arguments, message_pieces


def asked(call_id: str, tool: str, arguments: object, reply: str | None = None) -> TranscriptCall:
    """A call that a message asks for."""
    return TranscriptCall(call=CallRef(reply, call_id), tool=tool, arguments=arguments)


def said(role: Any, text: str, kind: Any = "text") -> BlockPiece:
    """A piece of a message."""
    return BlockPiece(role, kind, text)


TEXT_X, TEXT_Y = ({"type": "text", "text": text} for text in "xy")
IMAGE_URL: dict[str, object] = {"type": "image_url", "image_url": {}}
TOOL_CALLS: list[object] = [
    {"id": "a", "type": "function", "function": {"name": "pay", "arguments": '{"x":1}'}},
    {"id": "b", "type": "custom", "custom": {"name": "run", "input": "ls"}},
    *({"type": "function"}, "?"),
]
ASKED = [asked("a", "pay", '{"x":1}'), asked("b", "run", "ls")]
UNCLEAR = [said("assistant", '{"type": "function"}', "data"), said("assistant", "?", "data")]
ANSWER: dict[str, Any] = {"role": "tool", "tool_call_id": "a"}
CHAT: list[tuple[Any, list[MessagePiece]]] = [
    ({"role": "developer", "content": "Be brief."}, [said("developer", "Be brief.")]),
    (
        {"role": "user", "content": [TEXT_X, IMAGE_URL]},
        [said("user", "x"), said("user", '{"type": "image_url", "image_url": {}}', "data")],
    ),
    ({"role": "assistant", "content": None, "refusal": "I cannot."}, [said("assistant", "I cannot.", "refusal")]),
    ({"role": "assistant", "content": "", "tool_calls": TOOL_CALLS}, [*ASKED, *UNCLEAR]),
    (ANSWER | {"content": "paid"}, [AnswerPiece("a", "paid")]),
    (ANSWER | {"content": None}, [AnswerPiece("a", "")]),
    (ANSWER | {"content": [TEXT_X, TEXT_Y]}, [AnswerPiece("a", "x\ny")]),
    ({"role": "tool", "content": "lost"}, [said("tool", "lost")]),
]
MESSAGE = {"type": "message", "role": "assistant"}
OUTPUT = {"type": "function_call_output", "call_id": "a"}
SEARCH = {"type": "web_search_call", "id": "ws_1"}
RESPONSES: list[tuple[Any, list[MessagePiece]]] = [
    (MESSAGE | {"content": [{"type": "output_text", "text": "Hi."}]}, [said("assistant", "Hi.")]),
    (MESSAGE | {"content": [{"type": "refusal", "refusal": "No."}]}, [said("assistant", "No.", "refusal")]),
    (
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "x"},
        [said("assistant", "Hm.", "thinking")],
    ),
    ({"type": "reasoning", "summary": []}, []),
    ({"type": "function_call", "call_id": "a", "name": "pay", "arguments": "{}"}, [asked("a", "pay", "{}")]),
    ({"type": "custom_tool_call", "call_id": "a", "name": "run", "input": "ls"}, [asked("a", "run", "ls")]),
    (OUTPUT | {"output": "paid"}, [AnswerPiece("a", "paid")]),
    (OUTPUT | {"output": [{"type": "input_image"}]}, [AnswerPiece("a", '[{"type": "input_image"}]')]),
    (SEARCH, [said("message", '{"type": "web_search_call", "id": "ws_1"}', "data")]),
]
THOUGHT: list[dict[str, Any]] = [
    *({"type": "thinking", "thinking": "Hm.", "signature": "x"}, {"type": "redacted_thinking", "data": "x"}),
    *(TEXT_X, {"type": "tool_use", "id": "a", "name": "pay", "input": {"x": 1}}),
]
RESULTS: list[dict[str, Any]] = [
    {"type": "tool_result", "tool_use_id": "a", "content": [TEXT_X]},
    *({"type": "tool_result", "tool_use_id": "b"}, TEXT_Y),
]
ANTHROPIC: list[tuple[Any, list[MessagePiece]]] = [
    (
        {"role": "assistant", "content": THOUGHT},
        [said("assistant", "Hm.", "thinking"), said("assistant", "x"), asked("a", "pay", {"x": 1})],
    ),
    ({"role": "user", "content": RESULTS}, [AnswerPiece("a", "x"), AnswerPiece("b", ""), said("user", "y")]),
]
RETRIES = {
    "kind": "request",
    "parts": [
        {"part_kind": "retry-prompt", "content": "Again.", "tool_name": "pay", "tool_call_id": "b"},
        {"part_kind": "retry-prompt", "content": "An answer in JSON.", "tool_name": None, "tool_call_id": "x"},
        {"part_kind": "retry-feedback", "content": [{"type": "missing"}], "retry": {"cause": "validation_error"}},
    ],
}
"""As versions before pydantic-ai 3 write them; there the first two are deprecated."""

OTHERS: list[tuple[Any, list[MessagePiece]]] = [
    (
        RETRIES,
        [
            *(AnswerPiece("b", "Again."), said("feedback", "An answer in JSON.")),
            said("feedback", '[{"type": "missing"}]'),
        ],
    ),
    ("a text", [said("message", "a text", "data")]),
    ({"kind": "request", "parts": ["x"]}, [said("user", "x")]),
    ({"kind": "request"}, [said("message", '{"kind": "request"}', "data")]),
    ({"role": "user", "content": 7}, [said("user", "7", "data")]),
]


@pytest.mark.parametrize("message, pieces", [*CHAT, *RESPONSES, *ANTHROPIC, *OTHERS])
def test_a_message_has_its_pieces(message: Any, pieces: list[MessagePiece]) -> None:
    """Texts, calls and answers in order; JSON for everything else."""
    assert list(message_pieces(message)) == pieces


def test_messages_of_pydantic_ai_have_their_pieces() -> None:
    """Each part has a role of its own; a reply has the name that is in its metadata."""
    prompt = UserPromptPart(["Look:", ImageUrl("https://example.com/a.png")])
    asks = [ToolCallPart("pay", {"x": 1}, "c"), ToolCallPart("pay", None, "d")]
    parts: list[Any] = [ThinkingPart("Hm."), ThinkingPart(""), TextPart("I pay."), *asks]
    messages: list[Any] = [
        ModelRequest([SystemPromptPart("Be brief."), prompt, ToolReturnPart("pay", {"paid": True}, "a")]),
        ModelResponse([*parts, NativeToolCallPart("web_search", {"q": "x"}, "e")], metadata={"handrail_reply": "r1"}),
    ]
    dumped = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    request, response = (list(message_pieces(message)) for message in dumped)
    assert request[:2] == [said("system", "Be brief."), said("user", "Look:")]
    assert [piece.role for piece in request if isinstance(piece, BlockPiece)] == ["system", "user", "user"]
    assert request[3:] == [AnswerPiece("a", '{"paid": true}')]
    assert response[:2] == [said("assistant", "Hm.", "thinking"), said("assistant", "I pay.")]
    assert response[2:4] == [asked("c", "pay", {"x": 1}, "r1"), asked("d", "pay", "{}", "r1")]
    assert isinstance(response[4], BlockPiece)
    assert response[4].kind == "data"


_NAMES = ("role", "content", "type", "kind", "parts", "tool_calls", "id", "function", "name", "part_kind", "text")
_WORDS = ("assistant", "tool", "text", "request", "tool-call", "tool_use", "tool_result", "reasoning", "function")
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=3), inner | st.sampled_from(_WORDS), max_size=5)
    ),
    max_leaves=20,
)


@given(_JSON)
def test_no_message_is_refused(message: Any) -> None:
    """Whatever a program has appended is shown."""
    for piece in message_pieces(message):
        assert isinstance(piece, BlockPiece | TranscriptCall | AnswerPiece)


@pytest.mark.parametrize(
    "written, decoded",
    [('{"x": 1}', {"x": 1}), ("{x", "{x"), ("[" * 100_000, "[" * 100_000), ({"x": 1}, {"x": 1}), (None, None)],
    ids=["json", "not json", "too deep", "decoded", "none"],
)
def test_arguments_are_decoded_if_they_can_be(written: object, decoded: object) -> None:
    """A model writes what it likes."""
    assert decode_arguments(written) == decoded


@pytest.mark.parametrize(
    "file",
    [
        {"kind": "binary", "media_type": "image/png", "data": "QUJD", "vendor_metadata": None},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
        {"type": "input_image", "image_url": "data:image/png;base64,QUJD"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "input_file", "filename": "a.png", "file_data": "data:image/png;base64,QUJD"},
    ],
    ids=["PydanticAI", "Anthropic", "Responses", "Chat Completions", "a file of Responses"],
)
def test_a_file_is_shown_by_its_type_and_size(file: dict[str, Any]) -> None:
    """In the answer to a call, and in a message; base64 is not shown."""
    answer = {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "a chart"}, file]}
    assert list(message_pieces(answer)) == [AnswerPiece("a", "a chart\n[image/png, 3 bytes]")]
    shown = list(message_pieces({"role": "user", "content": [file]}))
    assert shown == [said("user", "[image/png, 3 bytes]", "data")]
