"""The rules of OpenAI's Responses: see `docs/how-to/own-loop.md`, and the SDK's `types/responses`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

from tests.providers import wire
from tests.providers.chat import bearer, openai_error
from tests.providers.wire import Event, Json, Refusal, Reply, only, pieces, required

_FIELDS = (
    "model input instructions tools tool_choice parallel_tool_calls temperature max_output_tokens store include stream"
)


def _is_own(item: Json) -> bool:
    """Whether an item is the model's."""
    return item.get("type") in {"function_call", "reasoning"} or item.get("role") == "assistant"


class Responses:
    """Responses."""

    path = "/v1/responses"

    def replies(self, body: Json, issued: dict[str, Json]) -> int:
        """As `Api`."""
        only(body, _FIELDS)
        required(body, "model", str)
        if not isinstance(body.get("instructions", ""), str):
            raise Refusal("Invalid type for 'instructions'.", "instructions")
        self._check_tools(body)
        items: list[Json] = required(body, "input", list)
        if not items:
            raise Refusal("Invalid 'input': empty array.", "input")
        position, count = 0, 0
        while position < len(items):
            end = position
            while end < len(items) and _is_own(items[end]):
                self._check_own(items[end], f"input[{end}].")
                wire.same_item(items[end], issued.get(items[end].get("id", "")), f"input[{end}]")
                end += 1
            if end > position:
                count += 1
                self._check_reasoning(items[position:end], issued, f"input[{position}]")
            asked = [item["call_id"] for item in items[position:end] if item["type"] == "function_call"]
            answered: list[str] = []
            while end < len(items) and items[end].get("type") == "function_call_output":
                only(items[end], "type call_id output caller", f"input[{end}].")
                self._check_output(items[end], f"input[{end}]")
                answered.append(required(items[end], "call_id", str))
                end += 1
            wire.check_answered(asked, answered, "input")
            if end == position:
                self._check_question(items[position], f"input[{position}]")
                end += 1
            position = end
        if _is_own(items[-1]):
            raise Refusal("The last item is the model's.", "input")
        return count

    def _check_own(self, item: Json, where: str) -> None:
        """What the helpers of the SDK add is not a field of the API."""
        for node in (item, *(item.get("content") or ())):
            added = [name for name in ("parsed", "parsed_arguments") if name in node]
            if added:
                raise Refusal(f"Unknown parameter: '{where}{added[0]}'.", where)

    def _check_output(self, item: Json, where: str) -> None:
        if isinstance(item.get("output"), str):
            return
        fields = {"input_text": "text", "input_image": "image_url", "input_file": "file_data"}
        for part in required(item, "output", list):
            if not part.get(fields.get(part.get("type"), "")):
                raise Refusal(f"Invalid output: {part.get('type')!r}.", f"{where}.output")

    def _check_question(self, item: Json, where: str) -> None:
        if item.get("type", "message") != "message" or item.get("role") not in {"user", "developer", "system"}:
            raise Refusal(f"Invalid value: {item.get('type')!r}.", where)
        only(item, "type role content", f"{where}.")
        required(item, "content", str)

    def _check_reasoning(self, items: list[Json], issued: dict[str, Json], where: str) -> None:
        """An item that was made with reasoning is sent with it."""
        sent = {item["id"] for item in items}
        for item in items:
            needed = f"rs_{item['id'].split('_')[1]}"
            if needed in issued and needed not in sent:
                raise Refusal(
                    f"Item '{item['id']}' of type '{item['type']}' was provided without its required 'reasoning' item: "
                    f"'{needed}'.",
                    where,
                )
        if items[-1]["type"] == "reasoning":
            raise Refusal(
                f"Item '{items[-1]['id']}' of type 'reasoning' was provided without its required following item.", where
            )

    def _check_tools(self, body: Json) -> None:
        tools: list[Json] = body.get("tools", [])
        for position, tool in enumerate(tools):
            where = f"tools[{position}]"
            only(tool, "type name description parameters strict", f"{where}.")
            if tool.get("type") != "function":
                raise Refusal(f"Invalid value: {tool.get('type')!r}.", f"{where}.type")
            wire.check_schema(tool.get("parameters"), f"{where}.parameters")
            required(tool, "strict", bool)
        wire.check_tools(tools, [tool.get("name") for tool in tools])

    def response(self, reply: Reply, tag: str, body: Json) -> tuple[Json, dict[str, Json]]:
        """As `Api`."""
        output: list[Json] = [{"type": "reasoning", "id": f"rs_{tag}", "summary": []}] if reply.calls else []
        if reply.text:
            content: Json = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
            if reply.end == "refusal":
                content = {"type": "refusal", "refusal": reply.text}
            message = {"type": "message", "id": f"msg_{tag}", "role": "assistant", "status": "completed"}
            output.append({**message, "content": [content]})
        for n, (name, arguments) in enumerate(reply.calls):
            call = {"type": "function_call", "id": f"fc_{tag}_{n}", "call_id": f"call_{tag}_{n}", "status": "completed"}
            output.append({**call, "name": name, "arguments": json.dumps(arguments)})
        response: Json = {"id": f"resp_{tag}", "object": "response", "created_at": 1, "status": "completed"}
        response |= {"error": None, "incomplete_details": None, "output": output, "model": body["model"]}
        response |= {"instructions": body.get("instructions"), "tools": body.get("tools", [])}
        response |= {"parallel_tool_calls": True, "tool_choice": "auto"}
        if reply.end in {"limit", "pause"}:
            response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        return response, {item["id"]: item for item in output}

    def events(self, response: Json) -> Iterator[Event]:
        """As `Api`: each item is added, grows, and is done."""
        numbers = count()

        def event(name: str, /, **data: object) -> Event:
            return f"response.{name}", {"type": f"response.{name}", "sequence_number": next(numbers), **data}

        yield event("created", response={**response, "status": "in_progress", "output": []})
        for place, item in enumerate(response["output"]):
            where = {"output_index": place, "item_id": item["id"]}
            empty = {"arguments": ""} if item["type"] == "function_call" else {}
            begun: Json = {"content": []} if item["type"] == "message" else {}
            yield event("output_item.added", output_index=place, item={**item, **empty, **begun})
            for index, part in enumerate(item.get("content", ())):
                inside = {**where, "content_index": index}
                kind, key = ("refusal", "refusal") if part["type"] == "refusal" else ("output_text", "text")
                more: Json = {} if kind == "refusal" else {"logprobs": []}
                yield event("content_part.added", **inside, part={**part, key: ""})
                for piece in pieces(part[key]):
                    yield event(f"{kind}.delta", **inside, delta=piece, **more)
                yield event(f"{kind}.done", **inside, **{key: part[key]}, **more)
                yield event("content_part.done", **inside, part=part)
            if item["type"] == "function_call":
                for piece in pieces(item["arguments"]):
                    yield event("function_call_arguments.delta", **where, delta=piece)
                yield event("function_call_arguments.done", **where, arguments=item["arguments"], name=item["name"])
            yield event("output_item.done", output_index=place, item=item)
        yield event(response["status"], response=response)

    def error(self, refusal: Refusal) -> Json:
        """As `Api`."""
        return openai_error(refusal)

    def key(self, headers: dict[str, str]) -> str | None:
        """As `Api`."""
        return bearer(headers)
