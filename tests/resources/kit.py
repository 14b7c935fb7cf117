"""Resources to test with: they depend on each other, can be closed, and can be undone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from handrail.resources import Binding, ResourceContext, ResourceRegistry

T = TypeVar("T")


def opened(*bindings: Binding[Any]) -> ResourceContext:
    """A context of these bindings."""
    return ResourceRegistry.of(*bindings).open()


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Do the same in so many threads, each with its number, and wait for all."""
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(work, range(count)))


def noted(seen: list[str], name: str, value: T) -> T:
    """The value, once it is noted that it was made."""
    seen.append(name)
    return value


@dataclass(frozen=True)
class Config:
    url: str = "here"


@dataclass(eq=False)
class Client:
    """Something that is closed, and tells a list when."""

    url: str = ""
    closed: list[str] = field(default_factory=list[str])
    name: str = "client"

    def close(self) -> None:
        self.closed.append(self.name)


class Tracer(Client):
    pass


class Cache(Client):
    pass


@runtime_checkable
class Greeter(Protocol):
    def greet(self) -> str: ...


class Unchecked(Protocol):
    def anything(self) -> str: ...


class English:
    def greet(self) -> str:
        return "hello"


class Counter:
    """A participant that cannot tell when it is written to."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def snapshot(self) -> int:
        return self.count

    def restore(self, snapshot: int, /) -> None:
        self.count = snapshot


class OtherCounter(Counter):
    pass


class Unweakable:
    """A participant that no turn can be kept for."""

    __slots__ = ()

    def snapshot(self) -> None:
        return None

    def restore(self, snapshot: None, /) -> None:
        return None
