"""The answer that a prompt declares: asked for by our schema, and parsed by our codec, as strictly as arguments are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai import ModelRetry, StructuredDict, UserError

from handrail.errors import ParseError, PromptValidationError
from handrail.serde import codec


def declared_type(kind: type[Any] | None) -> type[str | dict[str, Any]]:
    """What PydanticAI is to ask the model for: text, or an object with the schema of a dataclass.

    Raises:
        PromptValidationError: the dataclass refers to itself, for which PydanticAI has no schema.
    """
    if kind is None or kind is str:
        return str
    try:
        return StructuredDict(codec(kind).schema, name=kind.__name__)
    except UserError as error:
        raise PromptValidationError(
            f"the answer {kind.__name__} refers to itself, which PydanticAI cannot ask for; nest it to a fixed depth.",
            dataclass=kind,
        ) from error


def parser(kind: type[Any]) -> Callable[[Any], Any]:
    """What makes a dataclass of an answer; one that does not fit goes back to the model with all its faults."""
    answer = codec(kind)

    def parse(given: Any) -> Any:  # noqa: ANN401 - what PydanticAI has decoded, and whatever the prompt declares
        try:
            return answer.parse(given)
        except ParseError as error:
            raise ModelRetry(str(error)) from error

    return parse
