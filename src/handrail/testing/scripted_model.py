"""A PydanticAI model that plays a script instead of asking a provider.

    with ScriptedModel.from_file("refunds.yaml") as model:
        PydanticAIAdapter(model).evaluate(prompt, session=session)

It needs the extras `pydantic-ai` and `testing`. `handrail.testing.script` describes scripts.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

try:
    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        ModelResponsePart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
    )
    from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
    from pydantic_ai.usage import RequestUsage

    from handrail.testing.script_file import read_script
except ModuleNotFoundError as _error:
    raise ImportError(
        f"ScriptedModel needs {_error.name}, which is not installed: pip install 'handrail[pydantic-ai,testing]'"
    ) from _error

from handrail.testing.script import Playback, Reply, Script, SentMessage, SentMessages


class ScriptedModel(FunctionModel):
    """A model that plays the replies of a script once, and checks its input against the script.

    As a context manager, it checks at the end of the block that the script was played to its end. Another model of the
    same script may run on the same session: ids that are already used there are replaced, and the expectations of the
    script still refer to its own ids. `playback` is the position in the script.
    """

    def __init__(self, script: Script | Iterable[Reply], *, name: str = "scripted") -> None:
        """Starts before the first reply; `name` is its name in messages.

        Raises:
            ScriptError: the replies are not a valid script.
        """
        self.playback: Playback = Playback(script if isinstance(script, Script) else Script(tuple(script)))
        super().__init__(self._reply, stream_function=self._stream, model_name=name)

    @classmethod
    def from_file(cls, path: str | PathLike[str], *, name: str = "scripted") -> Self:
        """A model that plays the script of a YAML file (`handrail.testing.script_file`).

        Raises:
            ScriptError: the file cannot be read, or is not a script; the message has file, line and column.
        """
        return cls(read_script(Path(path)), name=name)

    def assert_finished(self) -> None:
        """Raises `ScriptError` with the remaining replies, unless the script was played to its end."""
        self.playback.assert_finished()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A failure of the block is the cause; unplayed replies would only hide it.
        if error is None:
            self.assert_finished()

    async def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        reply = self.playback.next(_sent_messages(messages, info))
        parts: list[ModelResponsePart] = [TextPart(reply.text)] if reply.text else []
        # The number of messages makes the id unique in a history with several structured answers.
        parts += _calls(reply, info, f"answer-{len(messages)}")
        usage = reply.usage
        if usage is None:
            return ModelResponse(parts=parts)
        counts = RequestUsage(input_tokens=usage.input, output_tokens=usage.output, cache_read_tokens=usage.cached)
        return ModelResponse(parts=parts, usage=counts)

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        # An empty text is still one piece: `FunctionModel` refuses a stream without any.
        for index, part in enumerate((await self._reply(messages, info)).parts or [TextPart("")]):
            if isinstance(part, ToolCallPart):
                # The text of the script, because PydanticAI would decode and encode it.
                arguments = part.args if isinstance(part.args, str) else part.args_as_json_str()
                yield {index: DeltaToolCall(part.tool_name, arguments, tool_call_id=part.tool_call_id)}
            elif isinstance(part, TextPart):
                for line in part.content.splitlines(keepends=True) or [""]:
                    yield line


def _calls(reply: Reply, info: AgentInfo, answer_id: str) -> list[ToolCallPart | TextPart]:
    parts: list[ToolCallPart | TextPart] = [
        ToolCallPart(call.name, call.arguments_text, tool_call_id=call.id) for call in reply.calls
    ]
    if reply.output is not None:
        text = json.dumps(dict(reply.output))
        if info.output_tools:
            parts.append(ToolCallPart(info.output_tools[0].name, text, tool_call_id=answer_id))
        else:
            parts.append(TextPart(text))
    return parts


def _sent_messages(messages: list[ModelMessage], info: AgentInfo) -> SentMessages:
    answers: list[SentMessage] = []
    call_ids: tuple[str, ...] = ()
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            call_ids = tuple(call.tool_call_id for call in message.tool_calls)
            break
        # Messages are read from the end, but the answers of one message are in order.
        answers[:0] = [
            SentMessage(part.tool_call_id, _text(part), part.outcome == "success")
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
    return SentMessages(
        info.instructions or "", tuple(tool.name for tool in info.function_tools), tuple(answers), call_ids
    )


def _text(part: ToolReturnPart) -> str:
    return part.content if isinstance(part.content, str) else part.model_response_str()
