"""The worker of `make bench-compare`: times cases on the Handrail that this process has imported.

It is started once for each checkout, with that checkout's `src` first on the path, and uses only what both have. It
reads a line `CASE CALLS` from standard input and answers with the microseconds that one call took, and with those of
the garbage collector in them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.timing import time_calls
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.runtime import IdempotencyConfig, Session, ToolCall
from handrail.session import stored_as
from handrail.store import Store

_ENTRIES = 1_000
_SERIAL = count(1)


@dataclass(frozen=True, slots=True)
class Lookup:
    """The arguments of the calls."""

    entity_id: str
    limit: int


@stored_as("benchmarks.probe.found")
@dataclass(frozen=True, slots=True)
class Found:
    """The result of the calls."""

    entity_id: str
    url: str


def _find(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    return ToolResult.ok(Found(params.entity_id, f"https://example.org/{params.entity_id}"))


def _executor(session: Session) -> ToolExecutor:
    once = IdempotencyConfig()
    tools: list[Tool[Any, Any]] = [
        Tool[Lookup, Found](name="read", description="Reads.", handler=_find, effect="read"),
        Tool[Lookup, Found](name="state", description="Changes.", handler=_find),
        Tool[Lookup, Found](name="external", description="Acts.", handler=_find, effect="external"),
        Tool[Lookup, Found](name="key", description="Acts.", handler=_find, effect="external", idempotency=once),
    ]
    section = MarkdownSection(title="Tools", key="tools", template="Use them.", tools=tools)
    return ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="benchmarks", key="probe", sections=[section])), session=session
    )


def _calling(session: Session, name: str) -> Callable[[], object]:
    """Calls of one tool, each with an id and arguments of its own."""
    executor = _executor(session)

    def call() -> object:
        number = next(_SERIAL)
        arguments = f'{{"entity_id":"abc-{number}","limit":5}}'
        message = executor.execute(ToolCall(f"call-{number}", name, arguments))
        assert message.success, message.content
        return message

    return call


def _opening(kept: Store) -> Callable[[], object]:
    """Opening and closing a session of a thousand entries."""
    with Session.open(kept, "opened") as session:
        call = _calling(session, "external")
        while True:
            call()
            row = kept.find("opened")
            if row is not None and row.head >= _ENTRIES:
                break

    def open_and_close() -> object:
        Session.open(kept, "opened").close()
        return None

    return open_and_close


@contextmanager
def cases(folder: Path, url: str) -> Generator[dict[str, Callable[[], object]]]:
    """What is timed, by name; `url` is of an empty database of PostgreSQL."""
    with ExitStack() as opened:
        found = {f"{name}, memory": _calling(Session(), name) for name in ("read", "state", "external", "key")}
        places = {
            "SQLite normal": opened.enter_context(store.open(f"sqlite:///{folder}/normal.db", durability="normal")),
            "PostgreSQL": opened.enter_context(store.open(url)),
        }
        for place, kept in places.items():
            session = opened.enter_context(Session.open(kept, "calls"))
            found |= {f"{name}, {place}": _calling(session, name) for name in ("state", "external")}
            found[f"open, {place}"] = _opening(kept)
        yield found


def main() -> int:
    """Time what is asked for, until nothing more is."""
    with cases(Path(sys.argv[1]), sys.argv[2]) as found:
        print("\t".join(found), flush=True)
        for line in sys.stdin:
            name, _, calls = line.strip().rpartition(" ")
            timing = time_calls(found[name], int(calls))
            print(timing.time, timing.collector, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
