"""The programs of `docs/how-to/own-loop.md`: the block with the tools, followed by the block of a provider."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final

from tests.architecture.sources import ROOT

PAGE: Final = ROOT / "docs" / "how-to" / "own-loop.md"
PROVIDERS: Final = ("chat", "responses", "messages")
"""Names of the APIs, in the order of the page; the program of one works on the session of this name."""

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_URL = "sqlite:///desk.db"


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        source: its text.
        url: its store, in the folder that it runs in.
        session: the id of its session.
    """

    source: str
    url: str
    session: str

    @property
    def lines(self) -> list[int]:
        """The lines that can be reached, in order."""
        return sorted({*_lines_of(compile(self.source, "program", "exec"))})

    @property
    def loop(self) -> range:
        """The lines from `with` to the end of the block."""
        text = self.source.splitlines()
        first = next(number for number, line in enumerate(text, 1) if line.startswith("with handrail.store.open("))
        last = next(number for number, line in enumerate(text[first:], first + 1) if line and not line.startswith(" "))
        return range(first, last - 1)

    def is_in(self, line: int, function: str) -> bool:
        """Whether a line is in the body of a function."""
        for node in ast.walk(ast.parse(self.source)):
            if isinstance(node, ast.FunctionDef) and node.name == function and node.end_lineno is not None:
                return node.lineno < line <= node.end_lineno
        raise ValueError(function)

    def over(self, url: str) -> Program:
        """The same over another store."""
        return Program(self.source.replace(_URL, url), url, self.session)

    def with_approval(self) -> Program:
        """The same with a policy that has payments approved, and an approver that waits until there is a file `yes`."""
        source = self.source.replace('    title="Payments",', '    title="Payments", policies=[AskAboutPayments()],')
        source = source.replace("session=session)", "session=session, approver=approver)")
        assert source.count("AskAboutPayments") == source.count("approver=approver") == 1
        return Program(_APPROVAL + source, self.url, self.session)


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
def program_of(provider: str) -> Program:
    """The program of a provider."""
    tools, *parts = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    source = tools + "\n" + parts[PROVIDERS.index(provider)]
    (session,) = re.findall(r'Session\.open\(store, "([^"]+)"\)', source)
    assert source.count(_URL) == 1
    return Program(source, _URL, session)


def _lines_of(code: CodeType) -> Iterator[int]:
    yield from (line for _, _, line in code.co_lines() if line)  # 0 and None are no lines of the file
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines_of(constant)


def payments_in(folder: Path) -> list[str]:
    """The orders that the service was asked to pay, once for each time."""
    path = folder / "payments.txt"
    return [line.split()[0] for line in path.read_text("utf-8").splitlines()] if path.exists() else []
