"""The rules of Anthropic's Messages: see `docs/how-to/own-loop.md`, and the SDK's `types`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.providers import wire
from tests.providers.chat import bearer
from tests.providers.wire import Event, Json, Refusal, Reply, only, pieces, required

_FIELDS = "model max_tokens messages system tools tool_choice stop_sequences stream"
_BLOCKS = {
    "text": "type text citations",
    "thinking": "type thinking signature",
    "server_tool_use": "type id name input caller",
    "tool_use": "type id name input caller",
    "tool_result": "type tool_use_id content is_error cache_control",
}
"""The fields of each type of block. Unlike OpenAI, the API refuses all others."""

_STOPS = {"limit": "max_tokens", "refusal": "refusal", "pause": "pause_turn"}
_DIRECT = {"caller": {"type": "direct"}}


class Messages:
    """Messages."""

    path = "/v1/messages"

    def replies(self, body: Json, issued: dict[str, Json]) -> int:
        """As `Api`."""
        only(body, _FIELDS)
        required(body, "model", str)
        required(body, "max_tokens", int)
        if not isinstance(body.get("system", ""), str):
            raise Refusal("system: Input should be a valid string")
        self._check_tools(body)
        messages: list[Json] = required(body, "messages", list)
        if not messages or messages[0].get("role") != "user":
            raise Refusal('messages: first message must use the "user" role')
        asked: list[str] = []
        paused = False  # a reply that is to be continued: the next message is the model's again
        for position, message in enumerate(messages):
            where = f"messages.{position}"
            only(message, "role content", f"{where}.")
            if message.get("role") not in {"user", "assistant"}:
                raise Refusal(f"{where}.role: Input should be 'user' or 'assistant'")
            blocks = self._blocks(message, where)
            if position and not paused and message["role"] == messages[position - 1]["role"]:
                raise Refusal(f"{where}: two messages of the same role")  # merged by the API; a loop has none
            paused = blocks[-1]["type"] == "server_tool_use"
            if message["role"] == "user":
                self._check_user(blocks, asked, where)
                asked = []
            else:
                asked = self._check_reply(blocks, issued, where)
        if messages[-1]["role"] != "user" and not paused:
            raise Refusal("This model does not support assistant message prefill.")
        return sum(message["role"] == "assistant" for message in messages)

    def _blocks(self, message: Json, where: str) -> list[Json]:
        content = message.get("content")
        found: list[Json] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else required(message, "content", list)
        )
        if not found:
            raise Refusal(f"{where}: all messages must have non-empty content")
        for position, block in enumerate(found):
            kind = block.get("type")
            if kind not in _BLOCKS:
                raise Refusal(f"{where}.content.{position}: Input tag {kind!r} is not expected")
            only(block, _BLOCKS[kind], f"{where}.content.{position}.")
            if kind == "text" and not required(block, "text", str):
                raise Refusal("messages: text content blocks must be non-empty")
        return found

    def _check_user(self, blocks: list[Json], asked: list[str], where: str) -> None:
        results = [block for block in blocks if block["type"] == "tool_result"]
        if blocks[: len(results)] != results:
            raise Refusal(f"{where}: `tool_result` blocks must come first")
        if any(block["type"] == "tool_use" for block in blocks):
            raise Refusal(f"{where}: `tool_use` blocks can only be in `assistant` messages")
        for block in results:
            self._check_result(block, where)
            if not isinstance(block.get("is_error", False), bool):
                raise Refusal(f"{where}: is_error: Input should be a valid boolean")
        wire.check_answered(asked, [required(block, "tool_use_id", str) for block in results], where)

    def _check_result(self, block: Json, where: str) -> None:
        if isinstance(block.get("content"), str):
            return
        for part in required(block, "content", list):
            if part.get("type") not in {"text", "image", "document"} or not (part.get("text") or part.get("source")):
                raise Refusal(f"{where}: content: Input tag {part.get('type')!r} is not expected")

    def _check_reply(self, blocks: list[Json], issued: dict[str, Json], where: str) -> list[str]:
        calls = [block for block in blocks if block["type"] == "tool_use"]
        for block in calls:
            if not isinstance(block.get("input"), dict):
                raise Refusal(f"{where}.content.tool_use.input: Input should be a valid dictionary")
            wire.same_item(block, issued.get(required(block, "id", str)), where)
        if any(block["type"] == "tool_result" for block in blocks):
            raise Refusal(f"{where}: `tool_result` blocks can only be in `user` messages")
        return [block["id"] for block in calls]

    def _check_tools(self, body: Json) -> None:
        tools: list[Json] = body.get("tools", [])
        for position, tool in enumerate(tools):
            only(tool, "name description input_schema strict input_examples cache_control type", f"tools.{position}.")
            wire.check_schema(tool.get("input_schema"), f"tools.{position}.input_schema")
        wire.check_tools(tools, [tool.get("name") for tool in tools])

    def response(self, reply: Reply, tag: str, body: Json) -> tuple[Json, dict[str, Json]]:
        """As `Api`."""
        content: list[Json] = [{"type": "text", "text": reply.text, "citations": None}] if reply.text else []
        if reply.end == "pause":
            thought = {"type": "thinking", "thinking": "I look it up.", "signature": f"signed-{tag}"}
            search = {"type": "server_tool_use", "id": f"srvtoolu_{tag}", "name": "web_search", "input": {"query": "A"}}
            content = [thought, *content, {**search, **_DIRECT}]
        asked = enumerate(reply.calls)
        calls = [
            {"type": "tool_use", **_DIRECT, "id": f"toolu_{tag}_{n}", "name": name, "input": given}
            for n, (name, given) in asked
        ]
        response = {"id": f"msg_{tag}", "type": "message", "role": "assistant", "model": body["model"]}
        reason = _STOPS.get(reply.end, "tool_use" if calls else "end_turn")
        response |= {"stop_reason": reason, "stop_sequence": None}
        response |= {"content": [*content, *calls], "usage": {"input_tokens": 1, "output_tokens": 1}}
        if reply.end == "refusal":
            response["stop_details"] = {"type": "refusal", "category": None, "explanation": "It could do harm."}
        return response, {str(call["id"]): call for call in calls}

    def events(self, response: Json) -> Iterator[Event]:
        """As `Api`: each block begins, grows, and stops; then the reason why the message stops."""
        begun: Json = {**response, "content": [], "stop_reason": None}
        yield "message_start", {"type": "message_start", "message": begun}
        for place, block in enumerate(response["content"]):
            empty, deltas = _grow(block)
            yield "content_block_start", {"type": "content_block_start", "index": place, "content_block": empty}
            for delta in deltas:
                yield "content_block_delta", {"type": "content_block_delta", "index": place, "delta": delta}
            yield "content_block_stop", {"type": "content_block_stop", "index": place}
        end = {name: response.get(name) for name in ("stop_reason", "stop_sequence", "stop_details")}
        yield "message_delta", {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}}
        yield "message_stop", {"type": "message_stop"}

    def error(self, refusal: Refusal) -> Json:
        """As `Api`."""
        kind = "authentication_error" if refusal.status == 401 else "invalid_request_error"
        return {"type": "error", "error": {"type": kind, "message": refusal.message}, "request_id": "req_1"}

    def key(self, headers: dict[str, str]) -> str | None:
        """As `Api`."""
        if headers.get("anthropic-version") not in {"2023-06-01", "2026-10-21"}:
            raise Refusal("anthropic-version: header is required")
        return headers.get("x-api-key") or bearer(headers)  # as older and newer versions of the SDK send it


def _grow(block: Json) -> tuple[Json, list[Json]]:
    """A block as it begins, and its deltas."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
        return {**block, "thinking": "", "signature": ""}, [
            *deltas,
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    words = pieces(json.dumps(block["input"]))
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in words]
