"""What the library may import, beyond the layers that `make imports` checks."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator

from tests.architecture.sources import ROOT, Source, listed, python_sources

CORE = frozenset({"pydantic", "pydantic_core", "typing_extensions"})

# What a module of the core imports inside of a function, when it first needs it.
LATE: dict[str, frozenset[str]] = {"handrail.prompt.function_signature": frozenset({"griffe"})}

# What stands above the core, and the third parties that each of them may import besides the core's own.
# The longest prefix counts; a module that none fits is core.
EXTRAS: dict[str, frozenset[str]] = {
    "handrail.adapters": frozenset(),
    "handrail.adapters.langgraph": frozenset({"langchain_core", "langgraph"}),
    "handrail.adapters.mcp": frozenset({"anyio", "httpx2", "mcp", "mcp_types", "starlette"}),
    "handrail.adapters.pydantic_ai": frozenset({"pydantic_ai", "pydantic_graph"}),
    "handrail.agents": frozenset({"pydantic_ai", "ruamel"}),
    "handrail.agents.serve": frozenset({"mcp_types", "pydantic_ai"}),
    "handrail.cli": frozenset({"cyclopts", "rich"}),
    "handrail.cli.mcp": frozenset({"cyclopts", "uvicorn"}),
    "handrail.cli.agents.settings": frozenset({"cyclopts", "pydantic_ai"}),
    "handrail.cli.agents.run": frozenset({"cyclopts", "pydantic_ai"}),
    "handrail.contrib.tools.python": frozenset({"pydantic_monty"}),
    "handrail.serde.document": frozenset({"ruamel"}),
    "handrail.serde.yaml_fields": frozenset({"ruamel"}),
    "handrail.serde.schema_codec": frozenset({"jsonschema", "referencing"}),
    "handrail.store.postgres": frozenset({"psycopg", "psycopg_pool"}),
    "handrail.telemetry": frozenset({"opentelemetry"}),
    "handrail.view": frozenset({"jinja2", "markupsafe", "starlette", "uvicorn"}),
    "handrail.worker": frozenset({"opentelemetry", "pydantic_ai"}),
    "handrail.worker.procrastinate_queue": frozenset({"croniter", "procrastinate", "psycopg"}),
    "handrail.testing": frozenset({"pydantic_ai", "ruamel"}),
    "handrail.testing.fixtures": frozenset({"pytest"}),
}

_LOAD = """
import importlib, json, sys
from pydantic import TypeAdapter
TypeAdapter(int)
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_core_imports_pydantic_and_no_other_third_party() -> None:
    """Each extra is imported in the modules that need it and nowhere else; griffe late, in one module of the core."""
    found = [
        f"{source.path}:{line} {package}"
        for source in python_sources("src")
        for package, line in _imported_packages(source)
        if package not in {*CORE, *_extras(source.module), *LATE.get(source.module, ()), "handrail"}
        and package not in sys.stdlib_module_names
    ]
    assert not found, listed(found)


def test_importing_the_core_loads_no_extra() -> None:
    """Whoever imports the core pays for pydantic and for nothing else, even where every extra is installed."""
    core = [source.module for source in python_sources("src") if not _is_extra(source.module)]
    loaded = {name.partition(".")[0] for name in _loaded_by(*core)}
    assert loaded - {*CORE, "handrail", *sys.stdlib_module_names} == set()


_OF_HANDRAIL = """
    agents cli contrib testing adapters.hooks adapters.settlement filesystem limits process store taint prompt.hooks
    prompt.idempotency prompt.read_before_write prompt.overrides prompt.policy runtime.approval runtime.claim_step
    runtime.handler_loop runtime.long_results runtime.ledger.claim runtime.ledger.effects runtime.ledger.lease_renewal
    runtime.ledger.ledger session.conversation session.open_calls session.views session.persistence.loading
    session.persistence.protocol session.persistence.recorder
"""
NEEDED_BY_SOME_CALLS = (
    *(f"handrail.{name}" for name in _OF_HANDRAIL.split()),
    *("asyncio", "base64", "difflib", "hashlib", "hmac", "random", "secrets", "sqlite3"),
)
"""What a synchronous call in memory, of a prompt with nothing but tools, does not use."""


def test_importing_the_executor_loads_what_every_call_needs() -> None:
    """Event loops, files, databases and hooks are loaded by programs that come to them."""
    loaded = _loaded_by("handrail.adapters.tool_executor")
    needless = [name for name in loaded for prefix in NEEDED_BY_SOME_CALLS if f"{name}.".startswith(f"{prefix}.")]
    assert not needless, listed(needless)


def _loaded_by(*modules: str) -> list[str]:
    line = [sys.executable, "-c", _LOAD, *modules]
    loaded: list[str] = json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout)
    return loaded


def _imported_packages(source: Source) -> Iterator[tuple[str, int]]:
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield ("handrail" if node.level else (node.module or "").partition(".")[0]), node.lineno


def _fitting(module: str) -> list[str]:
    return [prefix for prefix in EXTRAS if module == prefix or module.startswith(f"{prefix}.")]


def _is_extra(module: str) -> bool:
    return bool(_fitting(module))


def _extras(module: str) -> frozenset[str]:
    return EXTRAS[max(_fitting(module), key=len)] if _is_extra(module) else frozenset()


def test_modules_of_posix_are_imported_in_one_place() -> None:
    """`handrail.process`; and by the questions at a terminal."""
    pattern = re.compile(r"^\s*import (fcntl|grp|pwd|resource|termios)\b", re.MULTILINE)
    importing = {source.module for source in python_sources("src") if pattern.search(source.text)}
    assert importing == {"handrail.process", "handrail.cli.agents.progress"}
