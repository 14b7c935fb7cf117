"""Secret arguments are masked in a conversation, whatever form the messages of its provider have."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import SecretStr

from handrail.redaction import MASK
from handrail.serde import schema_masking, type_masking
from handrail.session.calls import CallMasking, ToolCall, masked_call, masked_words
from handrail.session.conversation import ConversationPart, RequestedCall, masked_item, masked_part


@dataclass(frozen=True)
class Login:
    """Parameters with a secret."""

    user: str
    password: SecretStr


GIVEN: dict[str, Any] = {"user": "ada", "password": "hunter2-hunter2"}
SHOWN: dict[str, Any] = {"user": "ada", "password": MASK}
TEXT, SHOWN_TEXT = json.dumps(GIVEN), '{"user":"ada","password":"**********"}'


@pytest.fixture
def masking() -> CallMasking:
    """One tool with a secret, and one without."""
    made = CallMasking()
    made.add("login", type_masking(Login))
    made.add("look", schema_masking({}))
    return made


FORMS: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "chat": lambda text, _: {"function": {"name": "login", "arguments": text}},
    "responses": lambda text, _: {"type": "function_call", "name": "login", "arguments": text, "call_id": "1"},
    "blocks": lambda _, given: {"content": [{"type": "tool_use", "name": "login", "input": given}]},
    "parts": lambda _, given: {"functionCall": {"name": "login", "args": given}},
    "text": lambda text, _: {"tool_name": "login", "args": "{" if text == TEXT else MASK, "content": "{"},
    "another tool": lambda _, __: {"tool_name": "look", "args": GIVEN},
    "words": lambda _, __: {"role": "user", "content": "password"},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_calls_are_recognized_in_the_messages_of_every_provider(masking: CallMasking, form: Any) -> None:
    """By the name of the tool beside the arguments."""
    part = ConversationPart((form(TEXT, GIVEN),))
    assert masked_part(part, masking).messages == (form(SHOWN_TEXT, SHOWN),)


def test_what_else_a_part_says_of_a_secret_is_replaced(masking: CallMasking) -> None:
    """In the words of the model, and where a form is not known; the stated calls show what it is."""
    part = ConversationPart(
        ({"text": "I use hunter2-hunter2.", "unknown": {"of": TEXT}},), "r1", (RequestedCall("1", "login", GIVEN),)
    )
    stored = masked_part(part, masking)
    (message,) = stored.messages
    assert message == {"text": f"I use {MASK}.", "unknown": {"of": TEXT.replace("hunter2-hunter2", MASK)}}
    assert stored.calls == (RequestedCall("1", "login", SHOWN),)
    assert part.calls[0].arguments == GIVEN
    assert masked_part(stored, masking) is stored


def test_a_part_without_secrets_is_the_same_object(masking: CallMasking) -> None:
    """Most are, and without any tool that takes secrets nothing is looked at."""
    part = ConversationPart(({"tool_name": "look", "args": "{}"},), "r1", (RequestedCall("1", "look", "{}"),))
    assert masked_part(part, masking) is part
    assert masked_part(part, CallMasking()) is part
    assert masked_item(1, masking) == 1


def test_instructions_are_stored_without_secrets() -> None:
    """They come from a file; what a user says is stored as it was said."""
    url, shown = "postgresql://ada:hunter2@host/desk", f"postgresql://ada:{MASK}@host/desk"
    asked: dict[str, Any] = {"kind": "request", "parts": [{"content": url}], "instructions": f"Use {url}."}
    plain: dict[str, Any] = {"kind": "request", "parts": [], "instructions": "Be brief."}
    part = masked_part(ConversationPart((asked, plain)), CallMasking())
    assert part.messages == ({**asked, "instructions": f"Use {shown}."}, plain)
    assert masked_part(part, CallMasking()) is part


def test_several_tools_of_a_name_are_all_heeded(masking: CallMasking) -> None:
    """Each prompt of a session may have its own."""
    masking.add("login", schema_masking({"properties": {"user": {"type": "string", "writeOnly": True}}}))
    masking.add("login", type_masking(Login))
    assert len(masking.of("login")) == 2
    part = masked_part(ConversationPart((), "r1", (RequestedCall("1", "login", GIVEN),)), masking)
    assert part.calls[0].arguments == {"user": MASK, "password": MASK}


@pytest.mark.parametrize(
    "words, shown",
    [
        *((TEXT, SHOWN_TEXT), (TEXT.encode(), SHOWN_TEXT), (GIVEN, SHOWN), ("{", MASK), ('"hunter2"', f'"{MASK}"')),
        *((same, same) for same in ("", "{}", SHOWN_TEXT, {"user": "ada"})),
    ],
    ids=str,
)
def test_arguments_are_masked_in_the_form_that_they_have(words: Any, shown: Any) -> None:
    """What is not JSON is masked whole, and what has no secret stays as it was written."""
    masked = masked_words(words, type_masking(Login))
    assert masked == shown
    assert (masked is words) == (words == shown)


def test_what_was_written_before_a_change_is_masked_too() -> None:
    """A person may have changed the secret."""
    call = masked_call(ToolCall("1", "login", GIVEN, TEXT), type_masking(Login))
    assert (call.arguments, call.written) == (SHOWN, SHOWN_TEXT)


@pytest.mark.parametrize("last", ['"hunter2-hunter2"', "null", f'"{MASK}"', '{"a": "hunter3-hunter3"}'])
@pytest.mark.parametrize("name", ["password", r"pass\u0077ord"])
def test_a_secret_that_is_given_twice_is_masked_with_both_values(masking: CallMasking, last: str, name: str) -> None:
    """Decoding has the last one alone."""
    words = f'{{"user": "ada", "{name}": ["hunter1-hunter1"], "password": {last}}}'
    message = {"content": "hunter1-hunter1 or hunter2-hunter2", "name": "login", "arguments": words}
    assert "hunter1" not in json.dumps(masked_part(ConversationPart((message,)), masking).messages)
    assert "hunter" not in str(masked_call(ToolCall("1", "login", words, words), type_masking(Login)))
