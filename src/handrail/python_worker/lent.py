"""The functions that code may call in the agent, seen from the code: each asks the agent, and waits for its answer.

The agent carries them out inside the call's transaction, on the filesystem of the call, and answers with a value or
with an exception of one of the types in `RAISED`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from handrail.python_worker.channel import Channel, ChannelError

FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "read_text": ("path",),
    "write_text": ("path", "text"),
    "list_files": ("path",),
    "glob_files": ("pattern",),
    "exists": ("path",),
    "remove_file": ("path",),
}
"""The functions by name, each with its parameters, which are text."""

RAISED: Mapping[str, type[Exception]] = {
    each.__name__: each for each in (FileNotFoundError, PermissionError, OSError, ValueError)
}
"""The exceptions that they raise, by name."""

_NO_AGENT = 3
"""The exit code of a process that has nothing to talk to any more."""

LentFunctions = Mapping[str, Callable[..., Any]]
"""The functions, by the names that code calls them by."""


def lent_functions(channel: Channel) -> LentFunctions:
    """The functions that code may call, over a channel to the agent."""

    def read_text(path: str) -> Any:  # noqa: ANN401 - what the agent answers
        return _asked(channel, "read_text", path)

    def write_text(path: str, text: str) -> Any:  # noqa: ANN401
        return _asked(channel, "write_text", path, text)

    def list_files(path: str = ".") -> Any:  # noqa: ANN401
        return _asked(channel, "list_files", path)

    def glob_files(pattern: str) -> Any:  # noqa: ANN401
        return _asked(channel, "glob_files", pattern)

    def exists(path: str) -> Any:  # noqa: ANN401
        return _asked(channel, "exists", path)

    def remove_file(path: str) -> Any:  # noqa: ANN401
        return _asked(channel, "remove_file", path)

    made = (read_text, write_text, list_files, glob_files, exists, remove_file)
    return {function.__name__: function for function in made}


def _asked(channel: Channel, name: str, *given: object) -> object:
    arguments = [_text(name, parameter, value) for parameter, value in zip(FUNCTIONS[name], given, strict=True)]
    try:
        channel.send({"call": name, "arguments": arguments})
        answer = channel.receive()
    except ChannelError:
        # The agent has ended, or wants no more of this evaluation. An exception would be one for the code to catch.
        os._exit(_NO_AGENT)
    if "raises" in answer:
        kind, message = answer["raises"]
        raise RAISED[kind](message)
    return answer.get("returns")


def _text(name: str, parameter: str, value: object) -> str:
    if isinstance(value, PurePath) and parameter != "text":
        return value.as_posix()
    if not isinstance(value, str):
        raise TypeError(f"{name}: {parameter} is to be a str, not {type(value).__name__}")
    return value
