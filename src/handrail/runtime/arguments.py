"""Steps 1 and 2: from a name and a text to a tool and its parameters."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Never

from handrail.errors import ParseError
from handrail.prompt import Tool
from handrail.runtime.events import Step
from handrail.runtime.failures import Refusal
from handrail.runtime.invocation import Invocation

_LONGEST_NAME = 80
"""Characters of an unknown name that are given back; tools have names of at most 64."""


def unknown_tool(run: Invocation) -> Never:
    """Refuse a call of a tool that the prompt does not have.

    Raises:
        Refusal: always; the message lists the names there are, and the nearest one.
    """
    asked = repr(run.call.name)
    asked = asked if len(asked) <= _LONGEST_NAME else f"{asked[:_LONGEST_NAME]}..."
    known = [tool.name for tool in run.environment.rendered_prompt.tools]
    if not known:
        raise Refusal(f"there is no tool {asked}: this prompt has no tools. Answer without calling one.")
    near = get_close_matches(asked.strip("'"), known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise Refusal(f"there is no tool {asked}.{hint} The tools are: {', '.join(known)}.")


def parse_arguments(run: Invocation, tool: Tool[Any, Any]) -> None:
    """Parse the arguments into `run.params`: an instance of the tool's parameter type, or `None` if it takes none.

    Raises:
        ParseError: they do not fit; the message names every fault with its path, and ends with the tool's first
            example.
    """
    run.step = Step.PARSE
    try:
        run.params = tool.parse(run.call.arguments, max_bytes=run.environment.max_argument_bytes)
    except ParseError as error:
        raise ParseError(f"{tool.name} was not run: {error}{_example_of(tool)}", faults=error.faults) from error


def _example_of(tool: Tool[Any, Any]) -> str:
    if tool.params_type is None:
        return "\nIt takes no arguments: send {}."
    return f"\nA call that is right: {tool.codec.dump_json(tool.examples[0].input).decode()}" if tool.examples else ""
