"""The words of pages, docstrings, comments and messages: what they name exists, and the docs have a budget."""

from __future__ import annotations

import ast
import builtins
import inspect
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import pytest

from handrail.cli.application import application
from tests.architecture.sources import ROOT, Source, listed, python_sources
from tests.docs.command_options import arguments, commands
from tests.docs.kit import SKILL, read_table
from tests.docs.test_pages import DECISIONS, DOCS

FORBIDDEN: dict[str, Any] = tomllib.loads((ROOT / "docs" / "glossary-forbidden.toml").read_text(encoding="utf-8"))


SOURCES = sorted((ROOT / "src" / "handrail").rglob("*.py"))


PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
    SKILL,
    *(ROOT / f"{name}.md" for name in ("README", "AGENTS", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY")),
]


DEFINED = [row[0] for row in read_table("glossary.md", "term")]


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


def read_text(source: Path) -> Iterator[Line]:
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
    lines = [line for source in SOURCES for line in read_text(source)]
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


NOT_OURS = """
    ToolNode add_messages create_agent get_runtime wrap_tool_call
    AsyncAnthropic AsyncOpenAI DynamicToolset ExternalToolset MCPToolset ToolAnnotations ToolDenied approval_required
    before_tool_execute finish_reason from_schema include_instructions include_return_schema override_args run_stream
    requires_approval stop_reason with_metadata atomic callproc cursor_factory on_commit Json RootModel Repository
    StringConstraints PosixPath ThreadPoolExecutor WindowsPath get_event_loop run_in_executor to_thread EX_TEMPFAIL
    FS_IOC_GETVERSION PR_SET_PDEATHSIG SQLITE_BUSY_SNAPSHOT journal_size_limit max_prepared_transactions pg_dump
    pg_signal_backend query_only tcp_keepalives_idle to_regclass node_modules fs protected_hardlinks requirement ctrl_c
    value_text ANTHROPIC_API_KEY OPENAI_API_KEY ACCESS_KEY API_KEY PRIVATE_KEY access_token api_key client_secret Cache
    Card Class Color Doc Ground Level North Page ID_2 ID_3 call_0 get_webpage notes_read_file prices_read_file test_till
    read_result_2 Address CELERY_BROKER_URL activity_id start_to_close_timeout visibility_timeout
    slack_sdk cost_limit input_tokens_limit output_tokens_limit tool_calls_limit
"""
"""Names of other libraries and programs; of the tests, and one that code composes; and those that a text makes up."""


_CODE_BLOCK = re.compile(r"^```(\w*).*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


_NAME = re.compile(r"@?([A-Za-z]\w*(?:\.\w+)*)(\(.*\))?(?:=.*)?", re.DOTALL)


_LIKE_CODE = re.compile(r"[a-zA-Z]\w*_\w+|[A-Z]+[a-z]+\w*")


_COMMAND = re.compile(r"(?<!from )\bhandrail((?: [a-z]+)+)([^`\n;]*)")


_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """The pages, and the strings and comments of the library, each with the file that it stands in."""
    pages = [(str(page.relative_to(ROOT)), _text_on(page)) for page in (*PAGES, ROOT / "CHANGELOG.md")]
    return (*pages, *((str(source.path), text) for source in python_sources("src") for text in _texts_in(source)))


def _text_on(page: Path) -> str:
    # The first column of the record of what is given up names what is gone, and that of a page about another library
    # what is there; nothing else does.
    text, others = page.read_text(encoding="utf-8"), ("0065-", "from-")
    return re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE) if page.name.startswith(others) else text


def _texts_in(source: Source) -> Iterator[str]:
    yield from re.findall(r"(?:^|\s)(#.*)", source.text)
    for node in source.nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def identifiers() -> frozenset[str]:
    """The identifiers of the code of the library, of the examples and of the pages."""
    code = {name for source in python_sources("src", "examples", "chaos") for name in _identifiers(source)}
    blocks = (block for page in PAGES for block in _CODE_BLOCK.findall(page.read_text(encoding="utf-8")))
    printed = {word for kind, text in blocks if kind not in {"text", "console"} for word in re.findall(r"\w+", text)}
    events = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in classes()}
    return frozenset(code | printed | events | {*NOT_OURS.split()} | {*dir(builtins)})


def _identifiers(source: Source) -> Iterator[str]:
    yield from source.path.with_suffix("").parts
    for node in source.nodes:
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            yield from str(getattr(node, field, None) or "").split(".")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not re.search(r"\s", node.value):
            yield from (node.value, *re.findall(r"\w+", node.value))


@cache
def classes() -> dict[str, str]:
    """The modules of the library that define a class, by its name."""
    nodes = ((node, source) for source in python_sources("src") for node in source.tree.body)
    return {node.name: source.module for node, source in nodes if isinstance(node, ast.ClassDef)}


def _has(kind: type[object], member: str) -> bool:
    ours = [base for base in kind.__mro__ if base.__module__.startswith("handrail")]
    fields = {field for base in ours for field in vars(base).get("__annotations__", {})}
    return (
        hasattr(kind, member) or member in fields or any(f"self.{member}" in inspect.getsource(base) for base in ours)
    )


def _is_gone(span: str) -> bool:
    # What looks like a name of code, and no code has it.
    if not (match := _NAME.fullmatch(" ".join(span.split()))):
        return False
    first, *members = match[1].split(".")
    if first == "handrail" and members:
        return not _resolves(match[1]) and match[1] not in identifiers()
    if first in classes() and members:
        return not _has(getattr(import_module(classes()[first]), first), members[0])
    parts = (first, *members, *re.findall(r"\b(\w+)=", match[2] or ""))
    return any(part not in identifiers() for part in parts if match[2] or _LIKE_CODE.fullmatch(part))


def _resolves(path: str) -> bool:
    try:
        return resolve_name(path) is not None
    except (ImportError, AttributeError):
        return False


def test_every_name_in_backticks_is_one_of_code() -> None:
    """A member is one of its class; other names are in the code of the library, of an example or of a page."""
    spans = {(where, span) for where, text in texts() for span in re.findall("`([^`]+)`", _CODE_BLOCK.sub("", text))}
    assert sorted(span for span in spans if _is_gone(span[1])) == []


def test_every_command_that_is_named_has_the_options_beside_it() -> None:
    """After `handrail COMMAND`; of a group, those of all its commands. Texts about commands name options alone, too."""
    faults = {(where, fault) for where, text in texts() for fault in _wrong_commands(text)}
    every = {"--version"}.union(*_options().values())
    about = [text for text in texts() if text[0].startswith(("docs/reference/command", "src/handrail/cli"))]
    options = {(where, option) for where, text in about for option in re.findall("`(--[a-z-]+)", text)}
    assert sorted(faults | {option for option in options if option[1] not in every}) == []


@cache
def _options() -> dict[tuple[str, ...], set[str]]:
    apps = commands(application(), ())
    return {command: {"--debug", "--help"}.union(*(each.names for each in arguments(app))) for command, app in apps}


def _wrong_commands(text: str) -> Iterator[str]:
    for match in _COMMAND.finditer(text):
        meant = [options for command, options in _options().items() if all(map(str.__eq__, command, match[1].split()))]
        known = {"--version"}.union(*meant)
        yield from (f"{match[0]}: {option}" for option in _OPTION.findall(match[2]) if option not in known)
        yield from () if meant else (match[0],)


def test_every_extra_that_is_named_can_be_installed() -> None:
    """`handrail[...]` in any text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {(where, name) for where, text in texts() for name in re.findall(r"\bhandrail\[([\w,-]+)\]", text)}
    faults = [named for named in extras if not project["optional-dependencies"].keys() >= {*named[1].split(",")}]
    assert (len(extras) > 5, faults) == (True, [])


def test_every_module_that_a_package_lists_is_in_it() -> None:
    """And every path in backticks that begins with a folder of the root or of the package leads to a file."""
    listings = [source for source in python_sources("src") if source.path.name == "__init__.py"]
    paths = [
        source.path.parent / f"{module}.py"
        for source in listings
        for module in re.findall(r"^- `(\w+)`", ast.get_docstring(source.tree) or "", re.MULTILINE)
    ]
    paths += [Path(path) for _, text in texts() for path in re.findall(r"`(\w+/[\w/]+\.\w+)`", text)]
    tops = {folder.name: folder.parent for root in (ROOT / "src/handrail", ROOT) for folder in root.iterdir()}
    faults = {path for path in paths if (top := tops.get(path.parts[0])) and not (top / path).exists()}
    assert {path for path in faults if not (ROOT / path.with_suffix("")).is_dir()} == set()


KNOWN = ("boook", "caf")
"""Parts of pages that look like mistakes: a mistake of a model, and the name of a file in another Unicode form."""


def mistakes(pages: Iterable[Path], folder: Path) -> list[str]:
    """What codespell finds, a line each."""
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words-list", ",".join(KNOWN), *map(str, pages)]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_the_pages_have_no_known_misspelling() -> None:
    """Those of `docs`, of the root, and of the examples."""
    assert mistakes([*PAGES, ROOT / "CHANGELOG.md"], ROOT) == []


MOST_WORDS = 64_950


BUDGETED = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


_IN_DOCS = {"explanation": 2_500, "how-to": 1_200, "tutorial": 1_200, "contributing": 2_000}
EACH = {
    "README.md": 1_400,
    "AGENTS.md": 600,
    "docs/explanation/is-it-for-me.md": 350,
    **{f"docs/{folder}/*.md": most for folder, most in _IN_DOCS.items()},
}
"""The most count_words of a page, by where it is."""


RECORDS = 25


OF_A_RECORD = 180
"""The most count_words of a decision, without headings; what is given up is a table."""


GIVEN_UP = "0065-what-is-given-up.md"


COLUMNS = 88


_BLOCK = re.compile(r"^```(?:python|yaml|toml|json|sql|ini|dockerfile)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


_WORD = re.compile(r"\w")


_HEADING = re.compile(r"^#.*$", re.MULTILINE)


def count_words(text: str) -> int:
    """The words of a text, those of code and outputs too; the bars of tables and other marks are none."""
    return sum(bool(_WORD.search(word)) for word in text.split())


def count_words_on(page: Path) -> int:
    """The words of a page."""
    return count_words(page.read_text(encoding="utf-8"))


def test_all_pages_are_within_the_budget() -> None:
    """What a table of the reference says is not said again in prose."""
    assert sum(map(count_words_on, BUDGETED)) <= MOST_WORDS


@pytest.mark.parametrize("pattern", EACH)
@pytest.mark.short(len(EACH))
def test_a_page_answers_one_question(pattern: str) -> None:
    """What is longer answers several."""
    counts = {page: count_words_on(page) for page in ROOT.glob(pattern)}
    over = [f"{page.relative_to(ROOT)}: {count}" for page, count in counts.items() if count > EACH[pattern]]
    assert not over, listed(over)


def test_a_decision_is_half_a_page() -> None:
    """And there are few: one that no longer decides anything is deleted."""
    pages = sorted(DECISIONS.glob("0*.md"))
    counts = {page.name: count_words(_HEADING.sub("", page.read_text(encoding="utf-8"))) for page in pages}
    long = [f"{name}: {count}" for name, count in counts.items() if count > OF_A_RECORD and name != GIVEN_UP]
    assert not long, listed(long)
    assert len(pages) <= RECORDS


def test_code_on_a_page_is_not_wider_than_a_page() -> None:
    """What commands print is as they print it."""
    blocks = ((page, block) for page in BUDGETED for block in _BLOCK.findall(page.read_text(encoding="utf-8")))
    lines = ((page, line) for page, block in blocks for line in block.splitlines())
    wide = [f"{page.relative_to(ROOT)}: {line}" for page, line in lines if len(line) > COLUMNS]
    assert not wide, listed(wide)
