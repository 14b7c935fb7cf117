"""What an agent is told: typed on the command line, or read from standard input."""

from __future__ import annotations

from typing import TextIO

from cyclopts import CycloptsError


def told(given: str | None, stream: TextIO | None, *, reading: bool = False) -> str | None:
    """What the agent is told; `None` if nothing is.

    Args:
        given: what was typed.
        stream: standard input, which is read if nothing is given and no person sits before it; `None` if there is none.
        reading: whether to read it in any case.

    Raises:
        CycloptsError: what is given is empty, or no text in UTF-8.
    """
    if given is not None:
        if reading:
            raise CycloptsError(
                msg="INPUT is typed, and `-` says to read it from standard input; leave one of them out"
            )
        if not given.strip():
            raise CycloptsError(msg="INPUT is empty; say what the agent is to do")
        return given
    if not reading and (stream is None or stream.isatty()):
        return None
    if stream is None:
        raise CycloptsError(msg="there is no standard input to read INPUT from")
    try:
        text = stream.read()
        text.encode()
    except UnicodeError as error:
        raise CycloptsError(msg=f"standard input is no text in UTF-8 ({error})") from error
    if text.strip():
        return text
    if not reading:
        return None
    raise CycloptsError(msg="standard input is empty; say there what the agent is to do")


def no_input(agent_file: object) -> CycloptsError:
    """The error for a run that begins with nothing."""
    return CycloptsError(
        msg=f'what is the agent to do? Write handrail run {agent_file} "INPUT", or hand INPUT over on standard input; '
        "without INPUT, only a session that is not finished goes on: --session ID"
    )
