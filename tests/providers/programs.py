"""The programs of the pages that ask a model: the block with the tools, followed by a block of the page."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final

from tests.architecture.sources import ROOT

_HOW_TO = ROOT / "docs" / "how-to"
OWN_LOOP: Final = _HOW_TO / "own-loop.md"
PYDANTIC_AI: Final = _HOW_TO / "pydantic-ai.md"
PROVIDERS: Final = ("responses", "chat", "messages", "responses-stream", "messages-stream")
"""The programs of `own-loop.md`, in its order, by their APIs; the last ones stream, and are asynchronous."""
ADAPTERS: Final = ("prompt", "agent")
"""The programs of `pydantic-ai.md` that store their conversations, in its order."""

_ADAPTER_FILES = ("pydantic_ai/adapter", "pydantic_ai/capability", "pydantic_ai/conversation")
_LOOP_FILES = {"responses": "openai", "chat": "openai", "messages": "anthropic"}

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_URL = "sqlite:///desk.db"


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        source: its text.
        url: its store, in the folder that it runs in.
        session: the id of its session.
        library: the files of the library before whose lines it may be killed, too.
    """

    source: str
    url: str
    session: str
    library: tuple[str, ...] = ()

    @property
    def lines(self) -> list[int]:
        """The lines that can be reached, in order."""
        return sorted({*_lines_of(compile(self.source, "program", "exec"))})

    @property
    def loop(self) -> range:
        """The lines of the function `converse`, or from `with` to the end of the block."""
        nodes = ast.parse(self.source).body
        loop = next(node for node in nodes if isinstance(node, ast.With) or getattr(node, "name", None) == "converse")
        assert loop.end_lineno is not None
        first = loop.lineno + (not isinstance(loop, ast.With))
        return range(first, loop.end_lineno + 1)

    def is_in(self, line: int, function: str) -> bool:
        """Whether a line is in the body of a function."""
        for node in ast.walk(ast.parse(self.source)):
            if isinstance(node, ast.FunctionDef) and node.name == function and node.end_lineno is not None:
                return node.lineno < line <= node.end_lineno
        raise ValueError(function)

    def over(self, url: str) -> Program:
        """The same over another store."""
        return replace(self, source=self.source.replace(_URL, url), url=url)

    def with_approval(self) -> Program:
        """The same with a policy that has payments approved, and an approver that waits until there is a file `yes`."""
        source = self.source.replace('title="Payments",', 'title="Payments", policies=[AskAboutPayments()],')
        source = source.replace("session=session)", "session=session, approver=approver)")
        assert source.count("AskAboutPayments") == source.count("approver=approver") == 1
        return replace(self, source=_APPROVAL + source)


_APPROVAL = """
from handrail.errors import CallPostponed
from handrail.prompt import ApprovalRequest, PolicyDecision


class AskAboutPayments:
    name = "payments"

    def check(self, tool, params, *, context):
        return PolicyDecision.ask("May it be paid?") if tool.name == "pay" else PolicyDecision.allow()

    def on_result(self, tool, params, result, *, context):
        pass


def approver(request: ApprovalRequest) -> bool:
    if not Path("yes").exists():
        raise CallPostponed(f"may {request.params.number} be paid?")
    return True


"""


@cache
def program_of(name: str) -> Program:
    """A program, by the name of its API or of what it adapts."""
    page, names = (OWN_LOOP, PROVIDERS) if name in PROVIDERS else (PYDANTIC_AI, ADAPTERS)
    tools, *parts = _BLOCK.findall(page.read_text(encoding="utf-8"))
    source = tools + "\n" + parts[names.index(name)]
    (session,) = re.findall(r'(?:store\.session\(|open_async\(store, )"([^"]+)"\)', source)
    assert source.count(_URL) == 1
    files: tuple[str, ...] = _ADAPTER_FILES
    if name in PROVIDERS:
        files = ("model_replies", _LOOP_FILES[name.partition("-")[0]])
    adapters = ROOT / "src" / "handrail" / "adapters"
    return Program(source, _URL, session, tuple(str(adapters / f"{file}.py") for file in files))


def _lines_of(code: CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line)  # 0 and None are no lines of the file
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines_of(constant)


def payments_in(folder: Path) -> list[str]:
    """The orders that the service was asked to pay, once for each time."""
    path = folder / "payments.txt"
    return [line.split()[0] for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def end_kept_loop() -> None:
    """End the event loop that `run_sync` of PydanticAI keeps in a thread, with its executor."""
    with suppress(RuntimeError, DeprecationWarning):  # there is none
        loop = asyncio.get_event_loop()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        asyncio.set_event_loop(None)
