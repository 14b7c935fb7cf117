"""Results that come from outside of a run, for calls that it had left open: those of untrusted tools are delimited.

PydanticAI puts them into the next request as they were given, past the pipeline: for tools that the program does not
run (`ExternalToolset`), and for calls whose tool has raised `CallDeferred`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from pydantic_ai import RunContext, ToolDefinition, ToolReturn
from pydantic_ai.messages import ModelRequest, ModelRequestPart, ToolReturnPart, UserPromptPart
from pydantic_core import from_json

from handrail.adapters.pydantic_ai.replies import Asked, asked
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.serde import canonical_json, schema_masking
from handrail.serde.json_schema import is_array
from handrail.taint.state import ContentMarks, Provenance, marks_of, shown_arguments, taint


class OutsideResults:
    """Delimits the results of one run that come from outside; the owner of what is known of the tools that have them.

    Attributes:
        tools: the tools that the program does not run, and that are marked as untrusted, by name.
    """

    __slots__ = ("_environment", "tools")

    def __init__(self, environment: Environment) -> None:
        """Work for the run of an environment."""
        self._environment = environment
        self.tools: dict[str, ToolDefinition] = {}

    async def marked(
        self, request: ModelRequest, ctx: RunContext[Any], results: Mapping[str, object] | None
    ) -> ModelRequest:
        """A request in which such results are delimited; the same object if it has none. They taint the session.

        Args:
            request: the request that follows the calls of a reply.
            ctx: the context of the run.
            results: what the program has given for calls of the reply, by their ids; `None` for nothing.

        Raises:
            SessionError: the taint cannot be recorded, so the request must not leave.
            StoreError: as well.
        """
        given = results or {}
        # The fast path: no tool has such results, and nothing has been read.
        if not self.tools and not given:
            return request
        parts: list[ModelRequestPart] = []
        said: list[tuple[object, ContentMarks]] = []
        for part in request.parts:
            # What PydanticAI says itself of invalid arguments, or of a refusal, is not from outside.
            is_given = isinstance(part, ToolReturnPart) and part.tool_call_id in given and part.outcome != "denied"
            if not isinstance(part, ToolReturnPart) or not (is_given or part.outcome == "success"):
                parts.append(part)
                continue
            marks = await self._marks_of(part.tool_name, asked(ctx, self._environment.session, part.tool_call_id))
            parts.append(part if marks is None else _delimited(part, marks))
            answer = given.get(part.tool_call_id)
            if marks is not None and isinstance(answer, ToolReturn) and answer.content:
                said.append((cast("object", answer.content), marks))
        return replace(request, parts=[_with_said(part, said) for part in parts])

    async def _marks_of(self, name: str, found: Asked) -> ContentMarks | None:
        """The marks of the result of a call, whose taint is recorded; `None` if its tool is trusted."""
        index, definition = self._environment.taints, self.tools.get(name)
        # A tool of this program has tainted the session when it put its result off.
        if definition is not None and index.place_of(found.ref) is None:
            words = found.words or {}
            plain: object = from_json(words) if isinstance(words, str) else words
            shown = canonical_json(schema_masking(definition.parameters_json_schema).mask(plain)).decode()
            provenance = Provenance(name, *found.ref.storable, shown_arguments(shown))
            await ASYNC.run(partial(taint, index, provenance, written="surely"), is_async=False, seconds=None)
        return marks_of(index, found.ref)


def _delimited(part: ToolReturnPart[Any], marks: ContentMarks) -> ModelRequestPart:
    """A part with its content between the marks, unless it is: the pipeline has delimited what it has run itself."""
    text = part.model_response_str()
    if marks.last in text:
        return part
    content: object = part.content
    shown: object = [marks.first, *content, marks.last] if is_array(content) else marks.around(text)
    return cast("ModelRequestPart", replace(part, content=shown))


def _with_said(part: ModelRequestPart, said: list[tuple[object, ContentMarks]]) -> ModelRequestPart:
    """A part with the marks of what was given beside a result, if it is that."""
    if not isinstance(part, UserPromptPart):
        return part
    content = part.content
    marks = next((marks for given, marks in said if given == content), None)
    if marks is None:
        return part
    return replace(part, content=[marks.first, *([content] if isinstance(content, str) else content), marks.last])
