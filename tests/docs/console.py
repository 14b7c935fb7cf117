"""Commands that a page shows as typed into a terminal, with what they print there."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from handrail.cli import main

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"\d+ (s|min|h|d) ago")
_SECONDS = re.compile(r"\d+\.\d s\b")
_BYTES = re.compile(r'"bytes": \d{3,}')  # records of calls hold how long these took
_ASKED = re.compile(r"^(asked +)\d{4}-\d\d-\d\d [\d:]{8} UTC", re.MULTILINE)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SAID_AT = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC(?=  )", re.MULTILINE)  # the heading of a message
_PROCESS = re.compile(r"process \d+ on [\w.-]+")
_CONTINUED = re.compile(r"\n {4}(?=\S)")


def commands_of(page: Path) -> Iterator[tuple[str, str]]:
    """Each command of a page, with what is shown below it."""
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = command.partition("\n")
            yield line, shown


def unwrapped(shown: str) -> str:
    """An output without the line breaks of its page, which continues a long line on the next one, after four blanks."""
    return _CONTINUED.sub(" ", shown)


def typed(line: str) -> tuple[int, str]:
    """The exit code of a command line, and what it prints on both streams, as a terminal shows them."""
    name, *argv = shlex.split(line)
    assert name == "handrail"
    screen = io.StringIO()
    with redirect_stdout(screen), redirect_stderr(screen):
        code = main(argv)
    return code, screen.getvalue()


def comparable(text: str) -> str:
    """A text without what time, place and chance make of it: how long ago something was, its process, random names."""
    text = _UUID.sub("UUID", _ASKED.sub(r"\1WHEN", text))
    text = _SAID_AT.sub("TIME", text)
    text = _BYTES.sub('"bytes": N', _SECONDS.sub("N s", _SPAN.sub("N ago", text)))
    return re.sub(" {2,}", "  ", _PROCESS.sub("process N", text))
