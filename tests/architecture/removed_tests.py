"""The tests and requirement ids that a revision has and the work tree has not.

`make removed-tests REF=main` prints them, and fails if there are any. Tests move with the module that they are about,
so they are compared by the names of their functions, and of the classes around these, and not by file. A name that is
defined in several files counts as often.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

__all__ = ["main", "removed", "requirement_ids", "test_names"]


def test_names(sources: Iterable[str]) -> Counter[str]:
    """How often each test function is defined, as `test_name` or `TestClass.test_name`."""
    return Counter(name for source in sources for name in _functions(ast.parse(source).body, ""))


def requirement_ids(sources: Iterable[str]) -> Counter[str]:
    """The ids that tests name with `pytest.mark.requirement`; each counts once."""
    calls = (node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    marks = (call for call in calls if ast.unparse(call.func) == "pytest.mark.requirement")
    return Counter({str(ast.literal_eval(argument)): 1 for mark in marks for argument in mark.args})


def removed(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """What the test files of a revision have and those of another one have not, each with its kind."""
    tests = test_names(before) - test_names(now)
    ids = requirement_ids(before) - requirement_ids(now)
    return [f"test {name}" for name in sorted(tests.elements())] + [f"requirement {key}" for key in sorted(ids)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is missing; returns 1 if something is."""
    parser = argparse.ArgumentParser(
        "make removed-tests REF=...", description="List tests and requirement ids that this tree no longer has."
    )
    parser.add_argument("ref", help="a revision of git, such as main")
    ref = parser.parse_args(arguments).ref
    try:
        before = list(_sources_at(ref))
    except subprocess.CalledProcessError as error:
        parser.error(error.stderr.strip())
    now = [path.read_text(encoding="utf-8") for path in sorted(Path("tests").rglob("*.py"))]
    missing = removed(before, now)
    counts = f"{test_names(before).total()} tests at {ref}, {test_names(now).total()} here; {len(missing)} missing"
    sys.stdout.write("\n".join([counts, *missing]) + "\n")
    return int(bool(missing))


def _functions(body: Iterable[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield prefix + node.name


def _sources_at(ref: str) -> Iterator[str]:
    for path in _git("ls-tree", "-r", "--name-only", ref, "tests").splitlines():
        if path.endswith(".py"):
            yield _git("show", f"{ref}:{path}")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
