"""The rules of Anthropic's Messages: see `docs/how-to/own-loop.md`, and the SDK's `types`."""

from __future__ import annotations

from tests.providers import wire
from tests.providers.chat import bearer
from tests.providers.wire import Json, Refusal, Reply, only, required

_FIELDS = "model max_tokens messages system tools tool_choice stop_sequences stream"
_BLOCKS = {
    "text": "type text citations",
    "tool_use": "type id name input caller",
    "tool_result": "type tool_use_id content is_error cache_control",
}
"""The fields of each type of block. Unlike OpenAI, the API refuses all others."""


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
        for position, message in enumerate(messages):
            where = f"messages.{position}"
            only(message, "role content", f"{where}.")
            if message.get("role") not in {"user", "assistant"}:
                raise Refusal(f"{where}.role: Input should be 'user' or 'assistant'")
            blocks = self._blocks(message, where)
            if position and message["role"] == messages[position - 1]["role"]:
                raise Refusal(f"{where}: two messages of the same role")  # merged by the API; a loop has none
            if message["role"] == "user":
                self._check_user(blocks, asked, where)
                asked = []
            else:
                asked = self._check_reply(blocks, issued, where)
        if messages[-1]["role"] != "user":
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
            required(block, "content", str)
            if not isinstance(block.get("is_error", False), bool):
                raise Refusal(f"{where}: is_error: Input should be a valid boolean")
        wire.check_answered(asked, [required(block, "tool_use_id", str) for block in results], where)

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
        said = {"type": "tool_use", "caller": {"type": "direct"}}
        asked = enumerate(reply.calls)
        calls = [{**said, "id": f"toolu_{tag}_{n}", "name": name, "input": given} for n, (name, given) in asked]
        response = {"id": f"msg_{tag}", "type": "message", "role": "assistant", "model": body["model"]}
        response |= {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        response |= {"content": [*content, *calls], "usage": {"input_tokens": 1, "output_tokens": 1}}
        return response, {str(call["id"]): call for call in calls}

    def error(self, refusal: Refusal) -> Json:
        """As `Api`."""
        kind = "authentication_error" if refusal.status == 401 else "invalid_request_error"
        return {"type": "error", "error": {"type": kind, "message": refusal.message}, "request_id": "req_1"}

    def key(self, headers: dict[str, str]) -> str | None:
        """As `Api`."""
        if headers.get("anthropic-version") not in {"2023-06-01", "2026-10-21"}:
            raise Refusal("anthropic-version: header is required")
        return headers.get("x-api-key") or bearer(headers)  # as older and newer versions of the SDK send it
