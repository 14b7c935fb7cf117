"""Steps 1 and 2: from a name and a text to a tool and its parameters."""

from __future__ import annotations

from typing import Any, Never

from handrail.errors import ParseError
from handrail.prompt import Tool
from handrail.runtime.calls import Step
from handrail.runtime.failures import Refusal
from handrail.runtime.invocation import Invocation
from handrail.serde.formatting import enumerated, nearest, shortened

_LONGEST_NAME = 80
"""Characters of an unknown name that are given back; tools have names of at most 64."""

_LONGEST_MESSAGE = 999
"""Bytes of UTF-8 in the message for an unknown tool, however many tools there are."""


def unknown_tool(run: Invocation) -> Never:
    """Refuse a call of a tool that the prompt does not have.

    Raises:
        Refusal: always; the message has the nearest name, and as many others as fit into 1,000 bytes.
    """
    asked = repr(run.call.name)
    asked = asked if len(asked) <= _LONGEST_NAME else f"{asked[:_LONGEST_NAME]}..."
    wanted = asked.strip("'")
    known = [tool.name for tool in run.environment.rendered_prompt.tools]
    if not known:
        raise Refusal(f"there is no tool {asked}: this prompt has no tools. Answer without calling one.")
    near = nearest(wanted, known)
    hint = f" Did you mean {shortened(near, _LONGEST_NAME)}?" if near else ""
    told = f"there is no tool {asked}.{hint} The tools are: "
    left = _LONGEST_MESSAGE - len(f"{told}.".encode(errors="surrogatepass"))
    raise Refusal(f"{told}{enumerated(known, limit=left, wanted=wanted)}.")


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
        raise ParseError(f"{not_run(tool.name, error)}{_example_of(tool)}", faults=error.faults) from error


def not_run(name: str, error: ParseError) -> str:
    """What the model is told of a call whose arguments do not fit.

    Args:
        name: the tool.
        error: what is wrong with the arguments.
    """
    return f"{name} was not run: {error}"


def _example_of(tool: Tool[Any, Any]) -> str:
    if tool.params_type is None:
        return "\nIt takes no arguments: send {}."
    return f"\nA call that is right: {tool.codec.dump_json(tool.examples[0].input).decode()}" if tool.examples else ""
