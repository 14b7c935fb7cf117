"""The client of a round: `python -m chaos.mcp.client FOLDER SETUP`, which starts what it calls, and starts it again.

It reads a task a line: calls, and the version of the protocol. It makes the calls at once, and again those whose
connection was lost, by the same keys, until each has an answer; then once more those that must not run again. It says
`done` when all of that has been answered, and goes on from its book when it was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

import mcp_types as t
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from chaos.books import Books
from chaos.mcp.desk import FOLDER

Setup = Literal["keys of calls", "keys of arguments", "find", "serve"]
"""What is called: a proxy in front of a bank, where each call has a key, or its arguments are the key, or the bank can
be asked for a payment; or tools of Handrail's."""

Outcome = Literal["done", "failed", "unknown"]
Mode = Literal["auto", "legacy"]

_ROOT: Final = Path(__file__).parents[2]
_UNKNOWN: Final = ("is unknown", "is not known")
_PAUSE: Final = 0.1
_MOST_REPEATS: Final = 50


@dataclass(frozen=True, slots=True)
class Payment:
    """A call of a tool that pays.

    Attributes:
        order: what is paid, and the key of the call.
        tool: the tool.
        arguments: its arguments.
        delay: after how many seconds it is made, so that some calls come while things are started again.
        has_key: whether the call has a key.
        retries: whether a call that has failed is made again.
        settles: whether a call whose outcome is unknown is made again.
    """

    order: str
    tool: str
    arguments: Mapping[str, object]
    delay: float
    has_key: bool
    retries: bool
    settles: bool


@dataclass(frozen=True, slots=True)
class Task:
    """What a client is to do."""

    calls: Sequence[Payment]
    mode: Mode

    @property
    def line(self) -> str:
        """The task as a line."""
        return json.dumps(asdict(self)) + "\n"


def url(folder: Path) -> str:
    """The store of a round."""
    return f"sqlite:///{folder}/desk.db"


def write_config(folder: Path, setup: Setup) -> None:
    """Writes the file that describes the bank."""
    pay: dict[str, object] = {"keys": {"pay": ["order"]}}
    if setup == "find":
        ask = {"tool": "find", "arguments": {"order": "order"}, "result": "payment"}
        # No payment of this setup goes on when its caller has gone.
        pay = {"reconcile": {"pay": {**ask, "proves_absence": True}}}
    bank = {"command": _bank(folder), "env": [f"PYTHONPATH={_path()}"], **pay}
    (folder / "proxy.yaml").write_text(json.dumps({"servers": {"bank": bank}}), encoding="utf-8")


def _bank(folder: Path) -> list[str]:
    return [sys.executable, "-m", "chaos.mcp.bank", str(folder)]


def _path() -> str:
    return os.pathsep.join((str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))


def _parameters(folder: Path, setup: Setup) -> StdioServerParameters:
    command = ["-m", "handrail", "serve" if setup == "serve" else "proxy", "--store", url(folder), "--session", "desk"]
    if setup == "serve":
        command += ["chaos.mcp.desk:TOOLS"]
    elif setup == "keys of calls":
        command += ["--env", f"PYTHONPATH={_path()}", "--", *_bank(folder)]
    else:
        command += ["--config", str(folder / "proxy.yaml")]
    environment = {"PYTHONPATH": _path(), FOLDER: str(folder)}
    return StdioServerParameters(command=sys.executable, args=command, env=environment, cwd=_ROOT)


class Caller:
    """Makes calls until they are answered."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        self._books = Books(folder)
        self._folder = folder
        self._parameters = _parameters(folder, setup)
        self._stack = AsyncExitStack()
        self._client: Client | None = None
        self._mode: Mode = "auto"

    async def do(self, task: Task) -> None:
        """Has all calls answered, and answered again."""
        self._mode = task.mode
        for attempt in range(_MOST_REPEATS):
            answers = self._answers()
            open_calls = [call for call in task.calls if _is_open(call, answers.get(call.order, ()))]
            if not open_calls:
                return
            if attempt:
                await asyncio.sleep(_PAUSE)
                open_calls = [replace(call, delay=0) for call in open_calls]
            await self._make(open_calls)
        raise RuntimeError(f"not everything is answered: {self._answers()}")

    async def close(self) -> None:
        """Ends the connection, and with it what was started."""
        stack, self._stack, self._client = self._stack, AsyncExitStack(), None
        try:
            await stack.aclose()
        except Exception:  # noqa: BLE001 - of a connection that was lost
            self._log()

    def _answers(self) -> dict[str, list[Outcome]]:
        answers: dict[str, list[Outcome]] = {}
        for entry in self._books.read("answered"):
            answers.setdefault(entry["order"], []).append(entry["outcome"])
        return answers

    async def _make(self, calls: Sequence[Payment]) -> None:
        try:
            if self._client is None:
                with (self._folder / "log.txt").open("a") as log:
                    transport = stdio_client(self._parameters, errlog=log)
                    self._client = await self._stack.enter_async_context(Client(transport, mode=self._mode))
            client = self._client
            results = await asyncio.gather(*(self._call(client, call) for call in calls), return_exceptions=True)
        except Exception:  # noqa: BLE001 - it could not be made: once more
            self._log()
            await self.close()
            return
        if any(isinstance(result, BaseException) for result in results):  # it was lost
            await self.close()

    async def _call(self, client: Client, call: Payment) -> None:
        await asyncio.sleep(call.delay)
        meta: Any = {"dev.handrail/key": call.order} if call.has_key else None
        result = await client.call_tool(call.tool, dict(call.arguments), meta=meta)
        text = " ".join(block.text for block in result.content if isinstance(block, t.TextContent))
        outcome: Outcome = (
            "unknown" if any(words in text for words in _UNKNOWN) else "failed" if result.is_error else "done"
        )
        self._books.write("answered", order=call.order, outcome=outcome, text=text)

    def _log(self) -> None:
        with (self._folder / "log.txt").open("a") as log:
            traceback.print_exc(file=log)


def _is_open(call: Payment, answers: Sequence[Outcome]) -> bool:
    if not answers:
        return True
    last = answers[-1]
    if (last == "failed" and call.retries) or (last == "unknown" and call.settles):
        return True
    return last != "failed" and answers.count(last) == 1  # what must not run again is asked for twice


async def _serve(folder: Path, setup: Setup) -> None:
    caller, loop = Caller(folder, setup), asyncio.get_running_loop()
    try:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            words = json.loads(line)
            await caller.do(Task([Payment(**call) for call in words["calls"]], words["mode"]))
            print("done", flush=True)
    finally:
        await caller.close()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), cast("Setup", sys.argv[2])))
