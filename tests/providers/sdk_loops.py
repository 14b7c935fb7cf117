"""A loop over each API through its official SDK, as the programs of `docs/how-to/own-loop.md` have it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from handrail import tool
from handrail.adapters import anthropic, openai
from handrail.adapters.model_replies import ReplyItems
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import BinaryPart, TextPart
from tests.providers import wire
from tests.providers.chat import Chat
from tests.providers.messages import Messages
from tests.providers.responses import Responses

ApiName = Literal["responses", "chat", "messages"]
APIS: tuple[ApiName, ...] = ("responses", "chat", "messages")
QUESTION = {"role": "user", "content": "Pay A-17 and A-18."}
ANSWER = "A-17 and A-18 are paid."


@dataclass
class Desk:
    """What the tools do.

    Attributes:
        paid: the orders of the payments.
    """

    paid: list[str] = field(default_factory=list[str])

    @property
    def tools(self) -> list[Any]:
        """The tools of the script, and some that return files, fail, or read what others write."""

        @tool(effect="external")
        def pay(number: str) -> str:
            """Pay an order."""
            self.paid.append(number)
            return f"{number} is paid"

        @tool
        def note(text: str) -> str:
            """Add a note."""
            if not text:
                raise ValueError("a note has a text")
            return f"noted: {text}"

        @tool(effect="read")
        def look() -> list[TextPart | BinaryPart]:
            """Look at the desk."""
            files = {"image/png": b"image", "application/pdf": b"document", "text/csv": b"a,b"}
            return [TextPart("The desk:"), *(BinaryPart(data, kind) for kind, data in files.items())]

        @tool(effect="read", untrusted=True)
        def read_mail() -> list[TextPart | BinaryPart]:
            """Read a mail."""
            return [TextPart("Hello."), BinaryPart(b"image", "image/png")]

        return [pay, note, look, read_mail]


@dataclass(frozen=True)
class Model:
    """The model of one API, asked through the SDK.

    Attributes:
        provider: the server.
        api: the API.
        streams: whether it is asked for a stream, and what was assembled of it is the response.
    """

    provider: wire.Provider
    api: ApiName
    streams: bool = False

    @property
    def loop(self) -> ModuleType:
        """The adapter."""
        return anthropic if self.api == "messages" else openai

    def _request(self, executor: ToolExecutor) -> dict[str, Any]:
        messages = executor.environment.session.conversation.messages
        if self.api == "responses":
            tools = openai.tools(executor)
            return {"model": "m", "instructions": executor.text, "input": messages, "tools": tools}
        if self.api == "chat":
            system = {"role": "developer", "content": executor.text}
            return {"model": "m", "messages": [system, *messages], "tools": openai.tools(executor, api="chat")}
        tools = anthropic.tools(executor, strict=True, cache=True)
        return {"model": "m", "max_tokens": 99, "system": executor.text, "messages": messages, "tools": tools}

    def ask(self, executor: ToolExecutor) -> Any:
        """The response to the next request."""
        request = self._request(executor)
        with self._client(OpenAI, Anthropic) as client:
            if not self.streams:
                return self._resource(client).create(**request)
            with self._resource(client).stream(**request) as events:
                return getattr(events, self._final)()

    async def ask_async(self, executor: ToolExecutor) -> Any:
        """As `ask`."""
        request = self._request(executor)
        async with self._client(AsyncOpenAI, AsyncAnthropic) as client:
            if not self.streams:
                return await self._resource(client).create(**request)
            async with self._resource(client).stream(**request) as events:
                return await getattr(events, self._final)()

    def converse(self, executor: ToolExecutor) -> ReplyItems:
        """The loop, to its end."""
        reply: ReplyItems = self.loop.answer(executor)
        while reply.continues:
            reply = self.loop.answer(executor, self.ask(executor))
        return reply

    async def converse_async(self, executor: ToolExecutor) -> ReplyItems:
        """As `converse`."""
        reply: ReplyItems = await self.loop.answer_async(executor)
        while reply.continues:
            reply = await self.loop.answer_async(executor, await self.ask_async(executor))
        return reply

    def run(self, executor: ToolExecutor, *, is_async: bool) -> ReplyItems:
        """The loop, to its end, on an event loop of its own if that is said."""
        return asyncio.run(self.converse_async(executor)) if is_async else self.converse(executor)

    @property
    def _final(self) -> str:
        names = {"responses": "get_final_response", "chat": "get_final_completion", "messages": "get_final_message"}
        return names[self.api]

    def _client(self, of_openai: type[Any], of_anthropic: type[Any]) -> Any:
        if self.api == "messages":
            return of_anthropic(api_key="none", base_url=self.provider.url, max_retries=0)
        return of_openai(api_key="none", base_url=f"{self.provider.url}/v1", max_retries=0)

    def _resource(self, client: Any) -> Any:
        return client.chat.completions if self.api == "chat" else getattr(client, self.api)


def request(api: str, name: str, arguments: dict[str, Any], call_id: str = "c") -> dict[str, Any]:
    """The JSON of a call."""
    if api == "messages":
        return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    function = {"name": name, "arguments": json.dumps(arguments)}
    if api == "chat":
        return {"id": call_id, "type": "function", "function": function}
    return {"type": "function_call", "call_id": call_id, **function}


CALLS_OF_ONE_ID: dict[str, list[Any]] = {
    api: [request(api, "pay", {"number": number}) for number in ("A-17", "A-18")] for api in APIS
}


def response_with(api: str, calls: list[Any]) -> dict[str, Any]:
    """The JSON of a response that asks for calls."""
    if api == "responses":
        return {"id": "r", "status": "completed", "output": calls}
    if api == "chat":
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        return {"id": "r", "choices": [{"finish_reason": "tool_calls", "message": message}]}
    return {"id": "r", "stop_reason": "tool_use", "content": calls}


@contextmanager
def serving() -> Generator[wire.Provider]:
    """A provider of all APIs, while the block runs; at its end it must have refused nothing."""
    with wire.serving(Chat(), Responses(), Messages()) as provider:
        yield provider
        assert provider.refusals == []


def asked(executor: ToolExecutor) -> ToolExecutor:
    """An executor whose conversation has a question."""
    executor.environment.session.conversation.append(QUESTION)
    return executor


def messages(executor: ToolExecutor) -> list[Any]:
    """The conversation after the question."""
    return executor.environment.session.conversation.messages[1:]
