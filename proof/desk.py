"""What the program of a contender has: the tools' bodies, the model, and the person who is asked.

All of them are in the process of `proof`, behind a socket: what was paid there survives each kill. This module imports
the standard library alone, since each contender has an environment of its own.
"""

from __future__ import annotations

import builtins
import json
import os
import socket
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

from proof.sets import Environment, load_environment


@dataclass(frozen=True, slots=True)
class Scene:
    """What a program is started with.

    Attributes:
        folder: has what the program stores.
        socket: the address of the world.
        asks: a person is asked before each payment.
        guards: mails are untrusted, and the program is to know.
        takes_keys: the bank pays once for each key.
        entry: the entry of a set whose state is in the process of the program; empty if there is none.
    """

    folder: str
    socket: str
    asks: bool = False
    guards: bool = False
    takes_keys: bool = False
    entry: str = ""

    @property
    def text(self) -> str:
        """The scene as text, for `read`."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Scene:
        """The scene of a text."""
        return cls(**json.loads(text))


class Call(NamedTuple):
    """A call that the model makes."""

    id: str
    name: str
    arguments: dict[str, Any]


class Answer(NamedTuple):
    """What the model reads as the answer of a call."""

    id: str
    text: str


class Files(Protocol):
    """What `ship` needs of files."""

    def exists(self, path: str, /) -> bool:
        """Whether there is a file."""
        ...

    def read_text(self, path: str, /) -> str:
        """The text of a file."""
        ...

    def write_text(self, path: str, text: str, /) -> object:
        """Writes a file."""
        ...


@dataclass(frozen=True, slots=True)
class PlainFiles:
    """Files of a folder."""

    root: Path

    def exists(self, path: str, /) -> bool:
        """Whether there is a file."""
        return (self.root / path).exists()

    def read_text(self, path: str, /) -> str:
        """The text of a file."""
        return (self.root / path).read_text(encoding="utf-8")

    def write_text(self, path: str, text: str, /) -> object:
        """Writes a file."""
        return (self.root / path).write_text(text, encoding="utf-8")


class Desk:
    """The world, as a program sees it.

    Attributes:
        folder: where the program stores what it has to.
        asks: a person is asked before each payment.
        guards: what mails say is not to be trusted.
        takes_keys: the bank pays once for each key.
        environment: the state of an entry of a set, that `act` changes; empty if the world has it.
    """

    def __init__(self, scene: Scene) -> None:
        self._socket = scene.socket
        self.folder = Path(scene.folder)
        self.asks = scene.asks
        self.guards = scene.guards
        self.takes_keys = scene.takes_keys
        self.environment: Environment | None = load_environment(scene.entry) if scene.entry else None
        self._tell("begin")

    @property
    def root(self) -> Path:
        """The folder of the files that `ship` writes."""
        return self.folder / "files"

    def ask_model(self, answers: Sequence[Answer]) -> list[Call]:
        """The calls of the model's next reply, given all answers of the conversation; it ends with none."""
        return [Call(*call) for call in self._tell("ask", answers=answers)]

    def ask_person(self, order: str, amount: str) -> bool:
        """Whether a person agrees to a payment."""
        return bool(self._tell("person", order=order, amount=amount))

    def finish(self, state: Mapping[str, Any]) -> None:
        """Notes that the conversation has ended, and the state that the program has then."""
        left = self.environment.dump() if self.environment else {}
        self._tell("finish", state=dict(state), left=left)

    def fail(self, error: str) -> None:
        """Notes that the program has ended with an exception."""
        self._tell("fail", error=error)

    # -------------------------------------------------------------------------------------------- the bodies of tools

    def pay(self, order: str, amount: str, key: str | None = None) -> str:
        """Pays an order; returns the receipt.

        Raises:
            ConnectionRefusedError: the bank did not take the call, so that nothing was paid.
            TimeoutError: the bank did not answer.
        """
        return str(self._tell("pay", order=order, amount=amount, key=key))

    def ship(self, order: str, state: MutableMapping[str, Any], files: Files) -> str:
        """Ships an order: two changes of the state and two of the files, with a call of the carrier between them.

        Raises:
            ConnectionError: the carrier did not answer.
        """
        state["stock"] = state.get("stock", 10) - 1
        _append(files, "parcels.txt", order)
        self._tell("carry", order=order)
        state["shipped"] = [*state.get("shipped", []), order]
        _append(files, "labels.txt", order)
        return f"receipt of the parcel {order}"

    def read_mail(self) -> str:
        """A mail, which is untrusted."""
        return str(self._tell("mail"))

    def act(self, function: str, arguments: Mapping[str, Any]) -> str:
        """Calls a function of a set: in the world, or on the state of this process, which a fault may stop halfway.

        Raises:
            ConnectionError: it was stopped.
        """
        answer = self._tell("act", function=function, arguments=arguments, here=self.environment is not None)
        if self.environment is None:
            return str(answer)
        result = self._act_here(self.environment, function, arguments, answer)
        return f"receipt of {function}: {result}"

    def _act_here(self, environment: Environment, function: str, arguments: Mapping[str, Any], stop: int | None) -> str:
        if stop is None:
            return environment.act(function, arguments)
        countdown = LineCountdown(stop, environment.modules)
        sys.settrace(countdown.enter)
        try:
            environment.act(function, arguments)
        except StoppedError:
            pass
        finally:
            sys.settrace(None)
        self._tell("landed", at=f"line {stop - max(0, countdown.left)} of {function}")
        raise ConnectionError(f"{function} was stopped")

    def _tell(self, operation: str, **fields: object) -> Any:
        request = json.dumps({"operation": operation, "pid": os.getpid(), **fields}).encode() + b"\n"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._socket)
            connection.sendall(request)
            with connection.makefile("rb") as stream:
                line = stream.readline()
        if not line:
            raise ConnectionError("the connection was closed")
        answer = json.loads(line)
        if "error" in answer:
            raise getattr(builtins, answer["error"])(answer["text"])
        return answer["result"]


class StoppedError(BaseException):
    """Stops a function of a set."""


class LineCountdown:
    """Stops a function at its so-manieth line; one that has fewer lines has ended, and its answer is lost."""

    def __init__(self, lines: int, modules: str) -> None:
        self.left = lines
        self._modules = modules

    def enter(self, frame: FrameType, event: str, _: object) -> Any:
        """Traces the functions of the set, and no other."""
        return self._line if event == "call" and self._modules in frame.f_code.co_filename else None

    def _line(self, _frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise StoppedError
        return self._line


def _append(files: Files, path: str, line: str) -> None:
    earlier = files.read_text(path) if files.exists(path) else ""
    files.write_text(path, f"{earlier}{line}\n")
