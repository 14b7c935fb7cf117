"""`make size`: lines of code, docstrings and templates, and modules, beside the budgets of `pyproject.toml`.

A line of code is one that is not blank, and neither a comment nor a part of the docstring of a module, a class or a
function. Exits with 1 if a package is over its budget.

    size.py [--format json] [ROOT]
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PACKAGE = Path("src", "handrail")
ROOT_MODULES = "(root)"
"""The name of the modules that are in no package below `handrail`."""

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a package beside its budget.

    Attributes:
        name: the package, or what else is counted.
        lines: its lines of code.
        max_lines: how many it may have.
        modules: its modules.
        max_modules: how many it may have.
    """

    name: str
    lines: int
    max_lines: int
    modules: int
    max_modules: int

    @property
    def is_over(self) -> bool:
        """Whether it is over its budget."""
        return self.lines > self.max_lines or self.modules > self.max_modules


def count_lines(text: str) -> tuple[int, int]:
    """The number of lines of code in the text of a module, and of those that its docstrings take."""
    code = {number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.strip()[0] != "#"}
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            code.update(_lines(node))  # a line of a text counts also if it is blank, or begins as a comment does
        elif isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            documented.update(_lines(node.body[0]))
    return len(code - documented), len(documented)


def _lines(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def measure(root: Path) -> Iterator[Size]:
    """The size of each package of a checkout, of all of them together, of docstrings, templates and tests.

    Raises:
        KeyError: a package has no budget in `pyproject.toml`.
    """
    budgets = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["size"]
    counts: dict[str, list[int]] = {name: [] for name in budgets["packages"]}
    docstrings: list[int] = []
    for path in sorted((root / PACKAGE).rglob("*.py")):
        inside, text = path.relative_to(root / PACKAGE).parts, path.read_text(encoding="utf-8")
        code, documented = count_lines(text)
        counts[inside[0] if len(inside) > 1 else ROOT_MODULES].append(code)
        docstrings.append(documented)
    for name, lines in counts.items():
        max_lines, max_modules = budgets["packages"][name]
        yield Size(name, sum(lines), max_lines, len(lines), max_modules)
    everything = [count for lines in counts.values() for count in lines]
    yield Size("all", sum(everything), budgets["all"][0], len(everything), budgets["all"][1])
    yield Size("docstrings", sum(docstrings), budgets["docstrings"][0], len(docstrings), budgets["docstrings"][1])
    templates = [path.read_text(encoding="utf-8") for path in sorted((root / PACKAGE).glob("*/templates/*"))]
    rows = [line for text in templates for line in text.splitlines() if line.strip()]
    yield Size("templates", len(rows), budgets["templates"][0], len(templates), budgets["templates"][1])
    tests = [count_lines(path.read_text(encoding="utf-8"))[0] for path in sorted((root / "tests").rglob("*.py"))]
    yield Size("tests", sum(tests), budgets["tests"][0], len(tests), budgets["tests"][1])


def main(arguments: list[str]) -> int:
    """Print the table; 1 if a package is over its budget."""
    parser = argparse.ArgumentParser(description="Lines of code and modules of each package, beside its budget.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--format", choices=["table", "json"], default="table")
    options = parser.parse_args(arguments)
    sizes = list(measure(options.root))
    if options.format == "json":
        print(json.dumps([asdict(size) for size in sizes], indent=1))
    else:
        print(f"{'package':<14}{'lines':>8}{'at most':>9}{'modules':>9}{'at most':>9}")
        for size in sizes:
            over = "  over budget" if size.is_over else ""
            print(f"{size.name:<14}{size.lines:>8,}{size.max_lines:>9,}{size.modules:>9}{size.max_modules:>9}{over}")
    return int(any(size.is_over for size in sizes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
