"""What runs in the process that `run_to_crash` starts. It is handed a folder, and leaves there what it came to."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any, NamedTuple

from handrail.crash_points import arm
from handrail.testing.crash import Trap

REQUEST = "request.json"
"""In the folder: what to run, and where to die."""

REACHED = "reached"
"""In the folder: the points that were reached, a line each, written before anything else happens there."""

RETURNED = "returned.json"
"""In the folder: what the target returned; absent if it did not."""


_MAIN = "crash_target"
"""What a main program is called when it is not the main program; its `if __name__ == "__main__":` is not entered."""


class Request(NamedTuple):
    """What a process is to do.

    Attributes:
        module: the module of the target, or the path of its file.
        function: the name of the target.
        arguments: what it is called with.
        at: the point at which to die; `None` to live.
        nth: at which time.
    """

    module: str
    function: str
    arguments: tuple[Any, ...]
    at: str | None
    nth: int


def carry_out(folder: str) -> None:
    """Run the target that the folder's request names, and die where it says.

    Raises:
        TypeError: the target returned something that JSON cannot say.
        Exception: what importing or calling the target raises.
    """
    at = Path(folder)
    request = Request(*json.loads((at / REQUEST).read_text(encoding="utf-8")))
    target = _target_of(request)
    trap = None if request.at is None else Trap(request.at, request.nth)
    report = os.open(at / REACHED, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def witness(point: str) -> None:
        os.write(report, f"{point}\n".encode())
        if trap is not None:
            trap(point)

    arm(witness)
    try:
        returned = target(*request.arguments)
        if inspect.iscoroutine(returned):
            returned = asyncio.run(returned)
    finally:
        arm(None)
        os.close(report)
    (at / RETURNED).write_text(_as_json(returned, request), encoding="utf-8")


def _target_of(request: Request) -> Callable[..., Any]:
    """The function, from an importable module, or from a file that was somebody's main program."""
    if not request.module.endswith(".py"):
        module = importlib.import_module(request.module)
    else:
        loader = SourceFileLoader(_MAIN, request.module)
        spec = ModuleSpec(_MAIN, loader, origin=request.module)
        spec.has_location = True
        module = module_from_spec(spec)
        sys.modules[_MAIN] = module  # dataclasses look there for what their annotations name
        loader.exec_module(module)
    target: Callable[..., Any] = getattr(module, request.function)
    return target


def _as_json(returned: object, request: Request) -> str:
    try:
        return json.dumps(returned)
    except TypeError as error:
        raise TypeError(
            f"{request.function} returned {type(returned).__name__}, which JSON cannot say ({error}). "
            "Let it return text, numbers, lists and mappings, or nothing."
        ) from error
