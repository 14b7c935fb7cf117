"""The interpreters that the Python suite can use, and what it takes to start one.

Both are found when a section is made, by the metadata of the installed packages: none of their code is imported here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from handrail.python_worker.program import EngineSettings
from handrail.python_worker.system_calls import filtering_machine

EngineName: TypeAlias = Literal["monty", "asteval"]
"""An interpreter: `"monty"` has no access to the system by its design, `"asteval"` only by the kernel (Linux)."""

_SOURCE = Path(__file__).parents[4]

_RUN = (
    "import sys; sys.path += sys.argv[1:3]; from handrail.python_worker.program import run_worker; "
    "from handrail.python_worker.{module} import {engine}; run_worker({engine})"
)


@dataclass(frozen=True, slots=True)
class _Package:
    """A package that an interpreter needs.

    Attributes:
        module: the module that is imported.
        distribution: what is installed.
        engine_module: the module of `handrail.python_worker` that imports it.
        engine: the class there.
        program: the distribution of the program that it starts, and the name of that; `None` if it starts none.
    """

    module: str
    distribution: str
    engine_module: str
    engine: str
    program: tuple[str, str] | None = None


_PACKAGES: Mapping[EngineName, _Package] = {
    "monty": _Package(
        "pydantic_monty", "pydantic-monty", "monty_engine", "MontyEngine", ("pydantic-monty-runtime", "monty")
    ),
    "asteval": _Package("asteval", "asteval", "asteval_engine", "AstevalEngine"),
}

ENGINES: tuple[EngineName, ...] = tuple(_PACKAGES)
"""All interpreters, the default first."""


def engine_fault(name: EngineName) -> str | None:
    """Why an interpreter cannot be used here, and what to do about it; `None` if it can."""
    package = _PACKAGES[name]
    program = package.program
    missing = find_spec(package.module) is None or (program is not None and _program(*program) is None)
    if missing:
        return f"engine {name!r} needs {package.distribution}, which is not installed: pip install 'handrail[python]'"
    if name == "asteval":
        try:
            filtering_machine()
        except OSError as error:
            return f"engine 'asteval' needs Linux on x86_64 or aarch64 ({error.strerror}); use engine='monty'"
    return None


def worker_line(name: EngineName, memory_bytes: int) -> tuple[str, ...]:
    """The program, and its arguments, of a process that evaluates code with an interpreter that can be used.

    Args:
        name: the interpreter.
        memory_bytes: how much memory code may use.
    """
    package = _PACKAGES[name]
    spec = find_spec(package.module)
    installed = "" if spec is None or spec.origin is None else os.fspath(Path(spec.origin).parents[1])
    run = _RUN.format(module=package.engine_module, engine=package.engine)
    settings = json.dumps(asdict(worker_settings(name, memory_bytes)))
    # Isolated, so that neither the environment nor the folder decides what it imports.
    options = ("-I", "-S", "-X", "utf8", "-c")
    return (sys.executable, *options, run, os.fspath(_SOURCE), installed, settings)


def worker_settings(name: EngineName, memory_bytes: int) -> EngineSettings:
    """What an interpreter is set up with; `memory_bytes` is how much memory code may use."""
    program = _PACKAGES[name].program
    return EngineSettings(memory_bytes, "" if program is None else _program(*program) or "")


def _program(package: str, name: str) -> str | None:
    """The path of a program that a distribution has installed; `None` if there is none."""
    try:
        files = distribution(package).files or ()
    except PackageNotFoundError:
        return None
    found = (Path(os.fspath(file.locate())) for file in files if file.stem == name and file.parent.name != name)
    return next((os.fspath(path.resolve()) for path in found if path.is_file()), None)
