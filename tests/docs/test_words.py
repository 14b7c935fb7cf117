"""`docs/glossary.md` defines each term once, and no text has what `docs/glossary-forbidden.toml` lists."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.architecture.sources import ROOT, listed
from tests.docs.test_tables import table_of

FORBIDDEN: dict[str, Any] = tomllib.loads((ROOT / "docs" / "glossary-forbidden.toml").read_text(encoding="utf-8"))
SOURCES = sorted((ROOT / "src" / "handrail").rglob("*.py"))
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
    *(ROOT / f"{name}.md" for name in ("README", "AGENTS", "CONTRIBUTING", "SECURITY")),
]
DEFINED = [row[0] for row in table_of("glossary.md", "term")]
OF_HANDRAIL = (
    *("call", "result", "message", "event", "slice", "transaction", "participant", "turn", "ticket", "effect"),
    *("ledger", "claim", "key", "slot", "lease", "fencing token", "store", "unit of work", "journal", "before-image"),
    *("policy", "rule", "gate", "approval", "suite", "toolset", "registry", "run"),
)
"""The terms that Handrail gives a meaning of its own."""

_FENCE = re.compile(r"^```(\w*)\n.*?^```$", re.MULTILINE | re.DOTALL)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


class Line(NamedTuple):
    """A line of text, and where it is."""

    where: str
    text: str


def text_of(source: Path) -> Iterator[Line]:
    """The comments and the strings of a module, docstrings among them, line by line."""
    name = source.relative_to(ROOT)
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(source.read_text(encoding="utf-8")).readline):
        if token.type in kinds:
            for number, line in enumerate(token.string.splitlines()):
                yield Line(f"{name}:{token.start[0] + number}", line)


def text_on(page: Path) -> Iterator[Line]:
    """The lines of a page, without its code."""
    for number, line in enumerate(without_code(page.read_text(encoding="utf-8")).splitlines(), 1):
        yield Line(f"{page.relative_to(ROOT)}:{number}", line)


def without_code(text: str) -> str:
    """A text in Markdown with empty lines in place of its code; what is printed stays."""

    def shown(block: re.Match[str]) -> str:
        return block[0] if block[1] in {"text", "console"} else "\n" * block[0].count("\n")

    return _FENCE.sub(shown, text)


def names_in(source: Path) -> Iterator[Line]:
    """The names that a module defines: functions, classes, parameters, variables and attributes."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found = name
            case ast.arg(arg=name):
                found = name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found = name
            case _:
                continue
        yield Line(f"{source.relative_to(ROOT)}:{node.lineno}", found)


@cache
def all_text() -> tuple[Line, ...]:
    """The lines of all modules and pages, read once for all expressions."""
    lines = [line for source in SOURCES for line in text_of(source)]
    return (*lines, *(line for page in PAGES for line in text_on(page)))


@cache
def all_names() -> Mapping[str, Sequence[Line]]:
    """The names of all modules by each word in them, read once for all words."""
    names: dict[str, list[Line]] = {}
    for source in SOURCES:
        for name in names_in(source):
            for word in {word.lower() for word in _WORDS.findall(name.text)}:
                names.setdefault(word, []).append(name)
    return names


@pytest.mark.parametrize("rule", FORBIDDEN["text"], ids=lambda rule: str(rule["find"]))
@pytest.mark.short(len(FORBIDDEN["text"]))
def test_an_expression_that_is_not_used(rule: dict[str, Any]) -> None:
    """In no comment, no docstring, no message and on no page."""
    pattern = re.compile(rule["find"], re.IGNORECASE)
    allowed = [re.compile(each) for each in rule.get("except", ())]
    found = [line for line in all_text() if pattern.search(line.text) and _is_used(pattern, allowed, line.text)]
    assert not found, f"say {rule['say']}:\n" + listed([f"{line.where}: {line.text.strip()}" for line in found])


def _is_used(pattern: re.Pattern[str], allowed: list[re.Pattern[str]], text: str) -> bool:
    for each in allowed:
        text = each.sub("", text)
    return pattern.search(text) is not None


@pytest.mark.parametrize("rule", FORBIDDEN["names"], ids=lambda rule: str(rule["word"]))
@pytest.mark.short(2)
def test_a_word_that_is_in_no_name(rule: dict[str, Any]) -> None:
    """Names are compared word by word: `is_told` has the word `told`."""
    found = all_names().get(rule["word"], ())
    assert not found, f"say {rule['say']}:\n" + listed([f"{name.where}: {name.text}" for name in found])


def test_terms_are_defined_once_and_in_order() -> None:
    """Two meanings of one word are two rows that say of what they are."""
    assert sorted(set(DEFINED), key=str.lower) == DEFINED


def test_the_terms_of_handrail_are_defined() -> None:
    """All of them."""
    assert {*OF_HANDRAIL} <= {*DEFINED}
