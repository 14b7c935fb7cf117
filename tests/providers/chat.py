"""The rules of OpenAI's Chat Completions: see `docs/how-to/own-loop.md`, and the SDK's `types/chat`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.providers import wire
from tests.providers.wire import Event, Json, Refusal, Reply, only, pieces, required

_FIELDS = "model messages tools tool_choice parallel_tool_calls temperature max_completion_tokens stream"
_FINISH = {"limit": "length", "pause": "content_filter"}  # what is no answer; a refusal is one, in another field
_ADDED = ("index", "parsed", "parsed_arguments")  # by the helpers of the SDK


def openai_error(refusal: Refusal) -> Json:
    """An error of OpenAI."""
    details = {"message": refusal.message, "type": "invalid_request_error", "param": refusal.param, "code": None}
    return {"error": details}


def bearer(headers: dict[str, str]) -> str | None:
    """The key in the header of OpenAI."""
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key if kind == "Bearer" else None


class Chat:
    """Chat Completions."""

    path = "/v1/chat/completions"

    def replies(self, body: Json, issued: dict[str, Json]) -> int:
        """As `Api`."""
        only(body, _FIELDS)
        required(body, "model", str)
        messages: list[Json] = required(body, "messages", list)
        if not messages:
            raise Refusal("Invalid 'messages': empty array.", "messages")
        self._check_tools(body)
        position = 0
        count = 0
        while position < len(messages):
            where = f"messages[{position}]"
            message = messages[position]
            position += 1
            match message.get("role"):
                case "developer" | "system":
                    only(message, "role content name", f"{where}.")
                    required(message, "content", str)
                case "user":
                    only(message, "role content name", f"{where}.")
                    self._check_content(message, where)
                case "assistant":
                    count += 1
                    calls = self._check_reply(message, issued, where)
                    answers: list[str] = []
                    while position < len(messages) and messages[position].get("role") == "tool":
                        only(messages[position], "role content tool_call_id", f"messages[{position}].")
                        required(messages[position], "content", str)
                        answers.append(required(messages[position], "tool_call_id", str))
                        position += 1
                    wire.check_answered(calls, answers, where)
                case "tool":
                    raise Refusal(
                        "messages with role 'tool' must be a response to a preceding message with 'tool_calls'.", where
                    )
                case role:
                    raise Refusal(f"Invalid value: {role!r}.", f"{where}.role")
        if messages[-1]["role"] not in {"user", "tool"}:
            raise Refusal("The last message is the model's.", "messages")
        return count

    def _check_content(self, message: Json, where: str) -> None:
        if isinstance(message.get("content"), str):
            return
        for part in required(message, "content", list):
            if part.get("type") not in {"text", "image_url", "file"} or not part.get(part["type"]):
                raise Refusal(f"Invalid content: {part.get('type')!r}.", f"{where}.content")

    def _check_tools(self, body: Json) -> None:
        tools: list[Json] = body.get("tools", [])
        for position, tool in enumerate(tools):
            only(tool, "type function", f"tools[{position}].")
            if tool.get("type") != "function":
                raise Refusal(f"Invalid value: {tool.get('type')!r}.", f"tools[{position}].type")
            only(required(tool, "function", dict), "name description parameters strict", f"tools[{position}].function.")
            wire.check_schema(tool["function"].get("parameters"), f"tools[{position}].function.parameters")
        wire.check_tools(tools, [tool["function"].get("name") for tool in tools])

    def _check_reply(self, message: Json, issued: dict[str, Json], where: str) -> list[str]:
        calls: list[Json] = message.get("tool_calls") or []
        if not calls:
            required(message, "refusal" if message.get("refusal") else "content", str)
            return []
        for node in (message, *calls, *(call[call["type"]] for call in calls)):
            if added := [name for name in _ADDED if name in node]:
                raise Refusal(f"Unknown parameter: '{where}.{added[0]}'.", where)
        known = issued.get(calls[0].get("id", ""))
        # The text of arguments may be written anew, with other blanks.
        wire.same_item(_decoded(message), None if known is None else _decoded(known), where)
        return [required(call, "id", str) for call in calls]

    def response(self, reply: Reply, tag: str, body: Json) -> tuple[Json, dict[str, Json]]:
        """As `Api`."""
        said, refused = (None, reply.text) if reply.end == "refusal" else (reply.text or None, None)
        message: Json = {"role": "assistant", "content": said, "refusal": refused, "annotations": []}
        functions = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in reply.calls]
        if functions:
            calls = enumerate(functions)
            message["tool_calls"] = [{"id": f"call_{tag}_{n}", "type": "function", "function": it} for n, it in calls]
        finish = _FINISH.get(reply.end, "tool_calls" if reply.calls else "stop")
        choices = [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}]
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        response = {"id": f"chatcmpl-{tag}", "object": "chat.completion", "created": 1, "model": body["model"]}
        response |= {"choices": choices, "usage": usage, "service_tier": "default"}
        return response, {f"call_{tag}_0": message} if reply.calls else {}

    def events(self, response: Json) -> Iterator[Event]:
        """As `Api`: the parts of the message, its calls in pieces, and how it ends."""
        choice = response["choices"][0]
        message = choice["message"]
        kind = {"object": "chat.completion.chunk"}

        def chunk(delta: Json, finish: str | None = None) -> Event:
            choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
            return "", {**{name: response[name] for name in ("id", "created", "model")}, **kind, "choices": choices}

        yield chunk({"role": "assistant", "content": None, "refusal": None})
        for field in ("content", "refusal"):
            yield from (chunk({field: piece}) for piece in pieces(message[field] or ""))
        for place, call in enumerate(message.get("tool_calls", ())):
            function = {"name": call["function"]["name"], "arguments": ""}
            yield chunk({"tool_calls": [{**call, "index": place, "function": function}]})
            for piece in pieces(call["function"]["arguments"]):
                yield chunk({"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
        yield chunk({}, choice["finish_reason"])
        yield "", "[DONE]"

    def error(self, refusal: Refusal) -> Json:
        """As `Api`."""
        return openai_error(refusal)

    def key(self, headers: dict[str, str]) -> str | None:
        """As `Api`."""
        return bearer(headers)


def _decoded(message: Json) -> Json:
    """A message in which the arguments of its calls are decoded."""
    functions = [(call, call["function"]) for call in message["tool_calls"]]
    calls = [{**call, "function": {**said, "arguments": json.loads(said["arguments"])}} for call, said in functions]
    return {**message, "tool_calls": calls}
