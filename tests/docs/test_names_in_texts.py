"""What pages, docstrings, comments and messages name exists: what is gone is named nowhere.

Links, headings and `make` targets are those of `test_pages.py`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

from handrail.cli.application import application
from tests.architecture.sources import ROOT, Source, python_sources
from tests.docs.command_options import arguments, commands
from tests.docs.test_words import PAGES

NOT_OURS = """
    AsyncAnthropic AsyncOpenAI DynamicToolset ExternalToolset MCPToolset ToolAnnotations ToolDenied approval_required
    before_tool_execute finish_reason from_schema include_instructions include_return_schema override_args run_stream
    requires_approval stop_reason with_metadata atomic callproc cursor_factory on_commit Json RootModel Repository
    StringConstraints PosixPath ThreadPoolExecutor WindowsPath get_event_loop run_in_executor to_thread EX_TEMPFAIL
    FS_IOC_GETVERSION PR_SET_PDEATHSIG SQLITE_BUSY_SNAPSHOT journal_size_limit max_prepared_transactions pg_dump
    pg_signal_backend query_only tcp_keepalives_idle to_regclass node_modules fs protected_hardlinks requirement ctrl_c
    value_text ANTHROPIC_API_KEY OPENAI_API_KEY ACCESS_KEY API_KEY PRIVATE_KEY access_token api_key client_secret Cache
    Card Class Color Doc Ground Level North Page ID_2 ID_3 call_0 get_webpage notes_read_file prices_read_file test_till
    read_result_2 Address
"""
"""Names of other libraries and programs; of the tests, and one that code composes; and those that a text makes up."""

_BLOCK = re.compile(r"^```(\w*).*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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
    for node in ast.walk(source.tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def words() -> frozenset[str]:
    """The identifiers of the code of the library, of the examples and of the pages."""
    code = {name for source in python_sources("src", "examples", "chaos") for name in _identifiers(source)}
    blocks = (block for page in PAGES for block in _BLOCK.findall(page.read_text(encoding="utf-8")))
    printed = {word for kind, text in blocks if kind not in {"text", "console"} for word in re.findall(r"\w+", text)}
    events = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in classes()}
    return frozenset(code | printed | events | {*NOT_OURS.split()} | {*dir(builtins)})


def _identifiers(source: Source) -> Iterator[str]:
    yield from source.path.with_suffix("").parts
    for node in ast.walk(source.tree):
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
        return not _resolves(match[1]) and match[1] not in words()
    if first in classes() and members:
        return not _has(getattr(import_module(classes()[first]), first), members[0])
    parts = (first, *members, *re.findall(r"\b(\w+)=", match[2] or ""))
    return any(part not in words() for part in parts if match[2] or _LIKE_CODE.fullmatch(part))


def _resolves(path: str) -> bool:
    try:
        return resolve_name(path) is not None
    except (ImportError, AttributeError):
        return False


def test_every_name_in_backticks_is_one_of_code() -> None:
    """A member is one of its class; other names are in the code of the library, of an example or of a page."""
    spans = {(where, span) for where, text in texts() for span in re.findall("`([^`]+)`", _BLOCK.sub("", text))}
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
