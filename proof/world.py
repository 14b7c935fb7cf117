"""The world outside of the programs: a bank, a carrier, a mailbox, a person, a model, and what each of them has seen.

It answers one request of a line of JSON per connection, in the process of `proof`, which no fault kills.
"""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from proof.model import Model
from proof.sets import Environment

_POLL = 0.01
_MOST_REQUESTS = 300


class Effect(NamedTuple):
    """What was done in the world.

    Attributes:
        order: what it was done for: an order, or the number of a call of a set.
        amount: what was paid.
        key: the key that came with it.
    """

    order: str
    amount: str = ""
    key: str | None = None


@dataclass
class Books:
    """What has happened.

    Attributes:
        effects: each effect, in turn.
        asked: how often the model was asked.
        questions: the payments that a person was asked about.
        landed: each blow of a fault.
        begun: the processes that have begun.
        ended: the processes that have brought the conversation to its end.
        failures: the tracebacks of the others that could say why they ended.
        times: when the model was asked, in seconds.
        state: the state that the last program had at its end.
        left: what the last program has left of the state of an entry.
    """

    effects: list[Effect] = field(default_factory=list[Effect])
    asked: int = 0
    questions: list[Effect] = field(default_factory=list[Effect])
    landed: list[str] = field(default_factory=list[str])
    begun: list[int] = field(default_factory=list[int])
    ended: list[int] = field(default_factory=list[int])
    failures: list[str] = field(default_factory=list[str])
    times: list[float] = field(default_factory=list[float])
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    left: dict[str, Any] = field(default_factory=dict[str, Any])


class Silence(Exception):
    """The connection is closed without an answer."""


class Blows(Protocol):
    """What a fault does to a request; see `proof.faults`. It may raise, and then the request fails so."""

    def strike(self, moment: str, request: Mapping[str, Any], world: World, /) -> Any:
        """Strikes at a moment: `begin`, `before` or `after` an effect, `carry`, `person`, or `act` in the program."""
        ...


class World:
    """Answers the requests of programs.

    Args:
        folder: what the programs store is in it.
        model: the model.
        blows: the fault.
        takes_keys: the bank pays once for each key.
        environment: the state of a set that the world holds.
    """

    def __init__(
        self,
        folder: Path,
        model: Model,
        blows: Blows,
        *,
        takes_keys: bool = False,
        environment: Environment | None = None,
    ) -> None:
        self.folder = folder
        self.model = model
        self.books = Books()
        self.environment = environment
        self.killed: set[int] = set()
        """The processes that a fault has killed: what they have sent meanwhile is not done."""
        self._blows = blows
        self._takes_keys = takes_keys
        self._lock = threading.RLock()

    def answer(self, request: Mapping[str, Any]) -> Any:
        """The result of a request.

        Raises:
            Silence: the fault closes the connection.
            Exception: the fault, or a function of a set, has it fail.
        """
        operation: Callable[[Mapping[str, Any]], Any] = getattr(self, f"_{request['operation']}")
        if request["operation"] == "begin":
            return operation(request)  # waits for others
        with self._lock:
            if request["pid"] in self.killed:
                raise Silence
            return operation(request)

    def _begin(self, request: Mapping[str, Any]) -> None:
        with self._lock:
            self.books.begun.append(request["pid"])
        self._blows.strike("begin", request, self)

    def _ask(self, request: Mapping[str, Any]) -> list[Any]:
        self.books.asked += 1
        self.books.times.append(time.perf_counter())
        if self.books.asked > _MOST_REQUESTS:
            raise RuntimeError("the model is asked again and again")
        return self.model.reply([(call_id, text) for call_id, text in request["answers"]])

    def _person(self, request: Mapping[str, Any]) -> bool:
        question = Effect(request["order"], request["amount"])
        self._blows.strike("person", request, self)
        self.books.questions.append(question)
        return self.model.wants(question.order, question.amount)

    def _mail(self, _: Mapping[str, Any]) -> str:
        return self.model.mail

    def _carry(self, request: Mapping[str, Any]) -> None:
        self._blows.strike("carry", request, self)

    def _pay(self, request: Mapping[str, Any]) -> str:
        effect = Effect(request["order"], request["amount"], request["key"])
        self._blows.strike("before", request, self)
        earlier = next((each for each in self.books.effects if each.key == effect.key), None)
        if earlier is not None and self._takes_keys and effect.key is not None:
            return f"receipt of {earlier.order}"
        self.books.effects.append(effect)
        self._blows.strike("after", request, self)
        return f"receipt of {effect.order}"

    def _act(self, request: Mapping[str, Any]) -> Any:
        effect = Effect(f"{request['function']} {request['arguments']}")
        if request["here"]:
            self.books.effects.append(effect)
            return self._blows.strike("act", request, self)
        self._blows.strike("before", request, self)
        self.books.effects.append(effect)
        if self.environment is None:
            raise RuntimeError("this world has no set")
        result = self.environment.act(request["function"], request["arguments"])
        self._blows.strike("after", request, self)
        return f"receipt of {request['function']}: {result}"

    def _landed(self, request: Mapping[str, Any]) -> None:
        self.books.landed.append(request["at"])

    def _finish(self, request: Mapping[str, Any]) -> None:
        self.books.ended.append(request["pid"])
        self.books.state, self.books.left = request["state"], request["left"]

    def _fail(self, request: Mapping[str, Any]) -> None:
        self.books.failures.append(request["error"])

    @contextmanager
    def serve(self, address: Path) -> Generator[None]:
        """Answers requests while the block runs."""
        world = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                try:
                    result = {"result": world.answer(json.loads(self.rfile.readline()))}
                except Silence:
                    return
                except Exception as error:  # noqa: BLE001 - the program raises it
                    result = {"error": type(error).__name__, "text": str(error)}
                try:
                    self.wfile.write(json.dumps(result).encode() + b"\n")
                except OSError:
                    return  # the process was killed

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True
            request_queue_size = 64

        with Server(str(address), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(_POLL,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()
