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


CHAT: list[tuple[Any, list[MessagePiece]]] = [
    ({"role": "developer", "content": "Be brief."}, [BlockPiece("developer", "text", "Be brief.")]),
    (
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {}}]},
        [
            BlockPiece("user", "text", "What is it?"),
            BlockPiece("user", "data", '{"type": "image_url", "image_url": {}}'),
        ],
    ),
    ({"role": "assistant", "content": None, "refusal": "I cannot."}, [BlockPiece("assistant", "refusal", "I cannot.")]),
    (
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "pay", "arguments": '{"x":1}'}},
                {"id": "b", "type": "custom", "custom": {"name": "run", "input": "ls"}},
                {"type": "function"},
                "?",
            ],
        },
        [
            asked("a", "pay", '{"x":1}'),
            asked("b", "run", "ls"),
            BlockPiece("assistant", "data", '{"type": "function"}'),
            BlockPiece("assistant", "data", "?"),
        ],
    ),
    ({"role": "tool", "tool_call_id": "a", "content": "paid"}, [AnswerPiece("a", "paid")]),
    (
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}],
        },
        [AnswerPiece("a", "x\ny")],
    ),
    ({"role": "tool", "tool_call_id": "a", "content": None}, [AnswerPiece("a", "")]),
    ({"role": "tool", "content": "lost"}, [BlockPiece("tool", "text", "lost")]),
]
RESPONSES: list[tuple[Any, list[MessagePiece]]] = [
    (
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
        [BlockPiece("assistant", "text", "Hi.")],
    ),
    (
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        [BlockPiece("assistant", "refusal", "No.")],
    ),
    (
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "x"},
        [BlockPiece("assistant", "thinking", "Hm.")],
    ),
    ({"type": "reasoning", "summary": []}, []),
    ({"type": "function_call", "call_id": "a", "name": "pay", "arguments": "{}"}, [asked("a", "pay", "{}")]),
    ({"type": "custom_tool_call", "call_id": "a", "name": "run", "input": "ls"}, [asked("a", "run", "ls")]),
    ({"type": "function_call_output", "call_id": "a", "output": "paid"}, [AnswerPiece("a", "paid")]),
    (
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image"}]},
        [AnswerPiece("a", '[{"type": "input_image"}]')],
    ),
    (
        {"type": "web_search_call", "id": "ws_1"},
        [BlockPiece("message", "data", '{"type": "web_search_call", "id": "ws_1"}')],
    ),
]
ANTHROPIC: list[tuple[Any, list[MessagePiece]]] = [
    (
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I pay."},
                {"type": "tool_use", "id": "a", "name": "pay", "input": {"x": 1}},
            ],
        },
        [
            BlockPiece("assistant", "thinking", "Hm."),
            BlockPiece("assistant", "text", "I pay."),
            asked("a", "pay", {"x": 1}),
        ],
    ),
    (
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "paid"}]},
                {"type": "tool_result", "tool_use_id": "b"},
                {"type": "text", "text": "And now?"},
            ],
        },
        [AnswerPiece("a", "paid"), AnswerPiece("b", ""), BlockPiece("user", "text", "And now?")],
    ),
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

PYDANTIC_AI: list[tuple[Any, list[MessagePiece]]] = [
    (
        RETRIES,
        [
            AnswerPiece("b", "Again."),
            BlockPiece("feedback", "text", "An answer in JSON."),
            BlockPiece("feedback", "text", '[{"type": "missing"}]'),
        ],
    )
]
OTHERS: list[tuple[Any, list[MessagePiece]]] = [
    ("a text", [BlockPiece("message", "data", "a text")]),
    ({"kind": "request", "parts": ["x"]}, [BlockPiece("user", "text", "x")]),
    ({"kind": "request"}, [BlockPiece("message", "data", '{"kind": "request"}')]),
    ({"role": "user", "content": 7}, [BlockPiece("user", "data", "7")]),
]


@pytest.mark.parametrize("message, pieces", [*CHAT, *RESPONSES, *ANTHROPIC, *PYDANTIC_AI, *OTHERS])
def test_a_message_has_its_pieces(message: Any, pieces: list[MessagePiece]) -> None:
    """Texts, calls and answers in order; JSON for everything else."""
    assert list(message_pieces(message)) == pieces


def test_messages_of_pydantic_ai_have_their_pieces() -> None:
    """Each part has a role of its own; a reply has the name that is in its metadata."""
    messages = ModelMessagesTypeAdapter.dump_python(
        [
            ModelRequest(
                [
                    SystemPromptPart("Be brief."),
                    UserPromptPart(["Look:", ImageUrl("https://example.com/a.png")]),
                    ToolReturnPart("pay", {"paid": True}, "a"),
                ]
            ),
            ModelResponse(
                [
                    ThinkingPart("Hm."),
                    ThinkingPart(""),
                    TextPart("I pay."),
                    ToolCallPart("pay", {"x": 1}, "c"),
                    ToolCallPart("pay", None, "d"),
                    NativeToolCallPart("web_search", {"q": "x"}, "e"),
                ],
                metadata={"handrail_reply": "r1"},
            ),
        ],
        mode="json",
    )
    request, response = (list(message_pieces(message)) for message in messages)
    assert request[:2] == [BlockPiece("system", "text", "Be brief."), BlockPiece("user", "text", "Look:")]
    assert [piece.role for piece in request if isinstance(piece, BlockPiece)] == ["system", "user", "user"]
    assert request[3:] == [AnswerPiece("a", '{"paid": true}')]
    assert response[:4] == [
        BlockPiece("assistant", "thinking", "Hm."),
        BlockPiece("assistant", "text", "I pay."),
        asked("c", "pay", {"x": 1}, "r1"),
        asked("d", "pay", "{}", "r1"),
    ]
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
    said = {"role": "user", "content": [file]}
    assert list(message_pieces(said)) == [BlockPiece("user", "data", "[image/png, 3 bytes]")]
