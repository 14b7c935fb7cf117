"""What is wrong with arguments as the model wrote them, and cannot be seen once PydanticAI has decoded them."""

from __future__ import annotations

from pydantic_ai.capabilities import RawToolArgs

from handrail.errors import ParseError
from handrail.serde.faults import message_of
from handrail.serde.json_values import repeated_keys


def repeated_key(args: RawToolArgs) -> ParseError | None:
    """That an object in the arguments holds a key twice; `None` if none does, or they are not text that is JSON.

    What is not JSON is refused by the validation of the tool.
    """
    if not isinstance(args, str) or args.count(":") < 2:  # noqa: PLR2004 - a key that is given twice has two
        return None
    try:
        faults = repeated_keys(args)
    except (ValueError, RecursionError):
        return None
    return ParseError(message_of(faults), faults=faults) if faults else None
