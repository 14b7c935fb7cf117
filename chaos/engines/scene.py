"""What the processes of a scene share: what is paid, by what, and when the process dies."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from chaos.books import Books
from handrail import tool
from handrail.prompt import Tool, ToolContext

Way = Literal["plain", "executor", "agent", "toolset", "capability"]
"""How orders are paid: by a step that is a function, by one that has an executor, by an agent whose tool is a function,
or has a toolset or a capability of Handrail's."""

Answer = Literal["done", "failed", "unknown"]

Death = Literal["before", "after"] | float
"""When the process dies: before the effect, after it, or so many seconds after it, wherever it is then."""

_UNKNOWN = ("is unknown", "is not known")


@dataclass(frozen=True, slots=True)
class Scene:
    """What is to be paid.

    Attributes:
        folder: has the books, and what the engine stores.
        url: the store of Handrail.
        engine_url: the database of the engine; empty for one that has none.
        way: how it is paid.
        runs: how many runs of the engine there are.
        payments: how many orders each run pays.
        kills: how often processes die at most.
        deaths: at which orders a process dies, when it pays them for the first time.
    """

    folder: str
    url: str
    engine_url: str
    way: Way
    runs: int
    payments: int
    kills: int
    deaths: Mapping[str, Death] = field(default_factory=dict[str, Death])

    @property
    def run_ids(self) -> list[str]:
        """The names of the runs."""
        return [f"run-{number}" for number in range(self.runs)]

    def orders(self, run_id: str) -> list[str]:
        """What a run pays."""
        return [f"{run_id}.{number}" for number in range(self.payments)]

    @property
    def text(self) -> str:
        """The scene as text, for `read`."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Scene:
        """The scene of a text."""
        return cls(**json.loads(text))


class Desk:
    """Pays orders in a process that dies as planned."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._books = Books(Path(scene.folder))
        self._timers: list[threading.Timer] = []

    def pay(self, order: str, key: str | None = None) -> str:
        """Pays an order; returns the receipt."""
        is_new = all(entry["order"] != order for entry in self._books.read("begun"))
        death = self._scene.deaths.get(order) if is_new else None
        if len(self._books.read("died")) >= self._scene.kills:
            death = None
        self._books.begin(order)
        if death == "before":
            self._die()
        receipt = self._books.pay(order, key)
        if death == "after":
            self._die()
        if isinstance(death, float):
            timer = threading.Timer(death, self._die)
            timer.daemon = True
            self._timers.append(timer)
            timer.start()
        return receipt

    @property
    def tool(self) -> Tool[Any, Any]:
        """The tool that pays an order."""

        @tool(effect="external")
        def pay(order: str, context: ToolContext) -> str:
            """Pays an order."""
            return self.pay(order, context.idempotency_key)

        return pay

    def note(self, answers: Mapping[str, Answer]) -> None:
        """Notes how the orders of a run were answered."""
        known = {entry["order"] for entry in self._books.read("answered")}
        for order, answer in answers.items():
            if order not in known:
                self._books.write("answered", order=order, outcome=answer)

    def wait(self) -> None:
        """Waits for the deaths that are under way."""
        for timer in self._timers:
            timer.join()

    def _die(self) -> None:
        self._books.write("died", pid=os.getpid())
        os.kill(os.getpid(), signal.SIGKILL)


def read_answer(text: str, *, success: bool) -> Answer:
    """The answer that a model reads."""
    return "done" if success else "unknown" if any(words in text for words in _UNKNOWN) else "failed"
