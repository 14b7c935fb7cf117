"""Tables of the reference and of explanations list what there is in the code; commands print what pages show."""

from __future__ import annotations

import ast
import inspect
import io
import re
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, replace
from datetime import timedelta
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args

import pytest

import handrail.errors
from handrail import store
from handrail.adapters import mcp_hints
from handrail.agents import Answer, RunOptions, RunResult
from handrail.agents.agent_file import AGENT_FILE_KEYS, NAME_PATTERN
from handrail.agents.approval import matching
from handrail.agents.approval.decisions import ApprovalMode
from handrail.agents.approval.path_rules import rule_filter
from handrail.agents.approval.rules import DEFAULTS, RULE_KEYS, ApprovalRules, Rule
from handrail.agents.approval.rules import RULES_FILE_KEYS as RULES_KEYS
from handrail.agents.project import ProjectConfig, ShellTable
from handrail.agents.run.interface import RunEvent
from handrail.agents.toolsets.builtin import built_ins
from handrail.cli import process_exit
from handrail.cli.application import application
from handrail.contrib.tools import SandboxLimits, VfsLimits, VfsToolsSection
from handrail.contrib.tools.planning import PlanningToolsSection
from handrail.errors import AgentError, DeveloperMistake, HandrailError, ModelVisibleError, RunAbortedError
from handrail.filesystem import HostFilesystem, PathFilter
from handrail.prompt.idempotency import OnOrphan
from handrail.session import Session
from handrail.store import open as open_store
from handrail.testing import Call, Expect, Reply
from tests.architecture.sources import ROOT, python_sources
from tests.docs import command_options, store_schema
from tests.docs.evening import fill
from tests.docs.kit import comparable, named_in, read_commands, read_table, typed
from tests.wording import Wording

ERRORS = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")


_OF_RUNS: dict[str, type[HandrailError]] = {"Read by the model": ModelVisibleError, "End the run": RunAbortedError}
ROOTS = {**_OF_RUNS, "Mistakes of the developer": DeveloperMistake, "Agents": AgentError}


BRANCHES = {HandrailError, ModelVisibleError, RunAbortedError, DeveloperMistake, handrail.errors.CallPostponed}


def error_rows(section: str = "") -> list[str]:
    """The names in the first cells of the tables of a section, or of all of them."""
    parts = re.split(r"^## ", ERRORS, flags=re.MULTILINE)[2:]
    chosen = [part for part in parts if not section or part.startswith(f"{section}\n")]
    return [name for part in chosen for name in re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)]


def test_each_exception_has_one_row() -> None:
    """Those that are only branches are named in the text."""
    every = [getattr(handrail.errors, name) for name in vars(handrail.errors)["__all__"]]
    kinds = {kind.__name__ for kind in every if isinstance(kind, type) and issubclass(kind, BaseException)}
    assert sorted(error_rows()) == sorted(kinds - {kind.__name__ for kind in BRANCHES})


@pytest.mark.parametrize("section", ROOTS)
def test_a_section_has_the_subclasses_of_its_branch(section: str) -> None:
    """All of them, and no others."""
    root = ROOTS[section]
    found = {name for name in error_rows() if issubclass(getattr(handrail.errors, name), root)}
    assert set(error_rows(section)) == found


LIMITS = "reference/limits.md"


INTERNAL = {
    *("CHUNK", "CHUNK_BYTES", "START_BYTES", "EFFECTS_AT_ONCE", "ROWS_PER_PAGE"),
    *("MOST_TOGETHER", "MOST_ENTRIES", "MAX_CACHED", "LONGEST_MESSAGE"),
    *("USER", "VERSION", "MOST_WRITTEN", "UNTIL_APPLIED", "TABLES_VERSION"),
}
"""Numbers that no program meets: how much is done at a time or remembered, and what has to be one."""


_NUMBER = re.compile(r"[\d_]+(\.\d+)?( (\*|<<|\+) [\d_]+)*|timedelta\(.*\)")


_ROW = re.compile(r"(?m)^\| .*?: (?:\[`(\w+)`\]\(\.\./\.\./src/(handrail[\w/]+)\.py\)|`(\w+)` of ).* \| ([\d,]+) ")


def limit_rows() -> Iterator[tuple[str, str, int]]:
    """The name, the module and the value of each row that names a constant or a parameter."""
    for name, path, parameter, value in _ROW.findall((ROOT / "docs" / LIMITS).read_text(encoding="utf-8")):
        yield name or parameter, path.replace("/", "."), int(value.replace(",", ""))


def find_default(name: str, module: str) -> object:
    """The value of a constant of a module, or the default of a parameter."""
    functions: dict[str, Callable[..., object]]
    functions = {"checkpoint_every": Session.open, "wait": Session.open, "busy": open_store}
    if name in functions:
        return inspect.signature(functions[name]).parameters[name].default
    if name in {field.name for field in fields(RunOptions)}:
        return getattr(RunOptions(), name)
    return getattr(import_module(module), name)


@pytest.mark.parametrize("name, module, value", [*limit_rows()], ids=str)
def test_a_limit_has_the_value_that_the_page_says(name: str, module: str, value: int) -> None:
    """Spans are in seconds."""
    found = find_default(name, module)
    assert value == (found.total_seconds() if isinstance(found, timedelta) else found)


def test_each_row_names_what_it_is_the_limit_of() -> None:
    """No row is left out of the comparison, and no field of the limits of file tools is left out of the page."""
    text = (ROOT / "docs" / LIMITS).read_text(encoding="utf-8")
    tables = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| limit |")]
    count = len(list(limit_rows()))
    for limits in (VfsLimits(), SandboxLimits()):
        of_tools = read_table(LIMITS, f"field of `{type(limits).__name__}`")
        count += len(of_tools) + 1
        documented = {row[0].strip("`"): int(row[1].split()[0].replace(",", "")) for row in of_tools}
        values = {field.name: getattr(limits, field.name) for field in fields(limits)}
        seconds = {name: value.total_seconds() for name, value in values.items() if isinstance(value, timedelta)}
        assert documented == values | seconds
    assert count == len(tables)


def test_every_limit_of_the_code_is_on_the_page() -> None:
    """A public constant that is a number or a span has a row, unless no program can meet it."""
    constants = {
        target.id
        for source in python_sources("src")
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and _NUMBER.fullmatch(ast.unparse(node.value))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id[0] != "_"
    }
    named = {name for name, _, _ in limit_rows()}
    assert sorted(constants - named - INTERNAL) == []
    assert sorted(INTERNAL - constants) == [], "take these off the list"


DOCS = ROOT / "docs"


def test_file_tools_are_those_of_the_section_with_their_effects() -> None:
    """In the order in which the section has them."""
    rows = [(named_in(row)[0], row[1]) for row in read_table("explanation/files.md", "tool")]
    assert rows == [(tool.name, tool.effect) for tool in VfsToolsSection().tools]


@pytest.mark.parametrize(
    "page, function, required",
    [("reference/configuration.md", store.open, {"url"}), ("explanation/files.md", HostFilesystem, {"root"})],
)
def test_options_are_the_arguments(page: str, function: Callable[..., object], required: set[str]) -> None:
    """All but what only tests have use for."""
    named = {*names_of_rows(page, "option")}
    assert named - {"clock"} == set(inspect.signature(function).parameters) - required - {"clock", "disk"}


def test_exit_codes_are_those_of_the_command() -> None:
    """0 and 1, and those that have a name."""
    codes = [int(code) for row in read_table("reference/command-line.md", "exit code") for code in row[0].split(",")]
    signals = map(process_exit.Terminated, (signal.SIGHUP, signal.SIGTERM))
    ended = [*map(process_exit.interrupt_exit_code, signals), process_exit.INTERRUPTED, process_exit.READER_GONE]
    assert codes == [0, 1, process_exit.USAGE, process_exit.WAITING, process_exit.TRY_AGAIN, *ended]


def test_what_becomes_of_orphans_is_told_of_each_policy() -> None:
    """The page helps to choose among all there are."""
    assert {*names_of_rows("explanation/effects.md", "`on_orphan`")} == set(get_args(OnOrphan))


def test_events_of_a_session_have_a_row() -> None:
    """Those that say of themselves that subscribers are notified."""
    classes = (node for source in python_sources("src") for node in source.tree.body if isinstance(node, ast.ClassDef))
    notes = "Subscribers of the session are notified"
    said = {node.name for node in classes if notes in (ast.get_docstring(node) or "")}
    assert {*names_of_rows("reference/events.md", "event")} == said | {"ToolInvoked"}


def test_every_variable_of_the_environment_has_a_row() -> None:
    """Those that a module reads; one that Handrail sets for its own processes is not a setting."""
    read = {name for source in python_sources("src") for name in re.findall(r"\bHANDRAIL_[A-Z_]+\b", source.text)}
    rows = {row[0].strip("`") for row in read_table("reference/configuration.md", "variable")}
    assert rows == read - {"HANDRAIL_CALL"}


def test_the_schema_of_stores_is_made_from_their_tables() -> None:
    """`make reference` writes it anew."""
    assert store_schema.PAGE.read_text(encoding="utf-8") == store_schema.page()


def names_of_rows(page: str, first_column: str) -> list[str]:
    """What the first cells of a table name as code, in their order."""
    return [name for row in read_table(page, first_column) for name in named_in(row)]


def _fields(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


_METADATA = ["effect", "concurrent", "idempotency", "approval", "max_result_chars", "untrusted"]


LISTS = [
    ("reference/agent-file.md", "key", AGENT_FILE_KEYS),
    ("reference/configuration.md", "`[tool.handrail]`", _fields(ProjectConfig)),
    ("reference/configuration.md", "`[tool.handrail.shell]`", _fields(ShellTable)),
    ("reference/agent-file.md", "toolset", [entry.name for entry in built_ins()]),
    ("reference/agent-file.md", "metadata", _METADATA),
    ("reference/running-agents.md", "option", _fields(RunOptions)),
    ("reference/running-agents.md", "`RunResult`", _fields(RunResult)),
    ("reference/scripts.md", "key of a reply", _fields(Reply)),
    ("reference/scripts.md", "key of a call", _fields(Call)),
    ("reference/scripts.md", "key of `expect`", _fields(Expect)),
    ("reference/running-agents.md", "event", [event.__name__ for event in get_args(RunEvent)]),
    ("reference/approval-rules.md", "key", RULES_KEYS),
    ("reference/approval-rules.md", "key of a rule", RULE_KEYS),
]


@pytest.mark.parametrize("page, column, there", LISTS)
def test_a_table_lists_what_there_is(page: str, column: str, there: Collection[str]) -> None:
    """All of it, and nothing else."""
    assert sorted(names_of_rows(page, column)) == sorted(there)


def test_modes_and_answers_are_those_that_there_are() -> None:
    """In their order; each verdict and each length of memory of an answer has a row."""
    assert tuple(row[0].strip("`") for row in read_table("explanation/approval.md", "mode")) == get_args(ApprovalMode)
    documented = [row[0].strip("`") for row in read_table("explanation/approval.md", "`Answer`")]
    given = {"verdict": ("yes", "no", "later"), "remember": ("nothing", "arguments", "rule")}
    assert documented == [f'{name}="{word}"' for name, words in given.items() for word in words]
    assert {field.name for field in fields(Answer)} == {*given, "reason"}


def test_defaults_are_those_of_the_code() -> None:
    """Of approval by effect, of a project, and of a run."""
    (row,) = [row for row in read_table("reference/approval-rules.md", "key") if named_in(row) == ["defaults"]]
    assert re.findall(r"`(\w+)`", row[1]) == [*DEFAULTS]
    assert re.findall(r"`(\w+)`", row[2]) == [*DEFAULTS.values()]
    project = {named_in(row)[0]: row[2] for row in read_table("reference/configuration.md", "`[tool.handrail]`")}
    for name in ("agents", "python"):
        documented = re.findall(r'"([^"]+)"', project[name])
        assert documented == [*getattr(ProjectConfig(), name)]
    run = {named_in(row)[0]: row[2] for row in read_table("reference/running-agents.md", "option")}
    assert (run["max_depth"], run["request_limit"]) == (str(RunOptions().max_depth), str(RunOptions().request_limit))
    assert run["mode"] == f'`"{RunOptions().mode}"`'
    assert f"`{NAME_PATTERN}`" in read_table("reference/agent-file.md", "key")[0][1]


def test_tools_of_built_in_toolsets_are_those_of_their_sections() -> None:
    """In the order in which a model sees them."""
    tools = {
        named_in(row)[0]: re.findall(r"`(\w+)`", row[1]) for row in read_table("reference/agent-file.md", "toolset")
    }
    assert tools["files"] == [tool.name for tool in VfsToolsSection().tools]
    assert tools["planning"] == [tool.name for tool in PlanningToolsSection(session=Session()).tools]


def rows_below(head: str, header: str) -> list[str]:
    """The rows of the table in a docstring whose header begins so."""
    lines = iter(head.splitlines())
    while not next(lines).startswith(header):
        pass
    return list(takewhile(lambda line: line.startswith("|"), lines))[1:]  # without the line below the header


@pytest.mark.parametrize(
    "page, column, source, header",
    [
        ("reference/agent-file.md", "hints of an MCP server", mcp_hints.__file__, "| the hints say"),
        ("reference/approval-rules.md", "in a glob", matching.__file__, "| in a glob"),
    ],
)
def test_a_table_says_what_the_head_of_its_module_says(page: str, column: str, source: str, header: str) -> None:
    """Row by row, word by word."""
    there = rows_below(Path(source).read_text(encoding="utf-8").split('"""')[1], header)
    assert [f"| {cells} |" for cells in map(" | ".join, read_table(page, column))] == there


def test_readings_of_globs_are_those_of_the_head_of_their_module() -> None:
    """Each row about something is about the same thing there."""
    rows = rows_below(matching.__doc__ or "", "| | to allow: narrowly")
    there = [row.split(" | ")[0].lstrip("| ") for row in rows]
    documented = [row[0] for row in read_table("reference/approval-rules.md", "| `allow`, narrowly")]
    assert documented == there


def test_table_of_rules_on_paths_says_what_the_code_does() -> None:
    """Each row names_of_rows its verdict, argument and tools, and the filter that they make."""
    kept = {
        "do not exist for reading, lists and searches": "reading",
        "are not written, made, moved, moved onto or removed": "writing",
        "are neither moved nor removed": "removing",
        "are left out of lists and searches, which count them": "listing",
        "are shown by no list or search, named or not": "searching",
        "stay when a folder above them is to be moved or removed": "holding",
    }
    assert list(kept.values()) == [each.name for each in fields(PathFilter)]
    into: list[str] = []
    for said, tools, files in read_table("reference/approval-rules.md", "the rule"):
        verdict, *arguments = re.findall(r"`(\w+)`", said)
        into = into if files == "the same" else [name for words, name in kept.items() if words in files]
        named = re.findall(r"`(\w+|\*)`", tools.partition(", and n")[0]) or ["*"]
        for tool in named:
            for argument in arguments or ["path"]:
                rule = Rule(tool, {argument: "x"})
                changed: dict[str, Any] = {verdict: (rule,)}
                every = replace(ApprovalRules(), **changed)
                found = rule_filter(every, ("desk",), "ask")
                assert [name for name in kept.values() if getattr(found, name)] == into, (said, tool)


COMMANDS = ROOT / "docs" / "reference" / "command-line.md"


_EXIT_CODE = "echo $?"


def test_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over one store, each after those above it; `echo $?` shows the exit code of the one before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    fill("sqlite:///desk.db")
    monkeypatch.setenv("HANDRAIL_STORE", "sqlite:///desk.db")
    code = 0
    for line, shown in read_commands(COMMANDS):
        if line == _EXIT_CODE:
            printed = f"{code}\n"
        else:
            code, printed = typed(line)
        assert comparable(printed.replace(str(tmp_path), "/srv")) == comparable(shown), line


def test_every_command_has_an_example() -> None:
    """A command that is added is shown on the page."""
    shown = {tuple(line.split()[1:3]) for line, _ in read_commands(COMMANDS)}
    groups = {group: application()[group] for group in ("sessions", "approvals", "ledger")}
    there = {(group, name) for group, app in groups.items() for name in app if not name.startswith("-")}
    assert there <= shown
    assert {"new", "check", "run", "proxy", "docs"} <= {first for first, *_ in shown}


def test_every_command_has_its_options_on_the_page() -> None:
    """A section each, and a row for each argument."""
    text = command_options.page()
    found = list(command_options.commands(application(), ()))
    assert text.count("\n## handrail ") == len(found) > 10
    for words, app in found:
        section = text.partition(f"\n## handrail {' '.join(words)}\n")[2].partition("\n## ")[0]
        assert section.count("\n| `") == len(command_options.arguments(app)) > 0


README = (ROOT / "README.md").read_text(encoding="utf-8")
TYPED = [command for command in read_commands(ROOT / "README.md") if command[0].startswith("handrail ")]

_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINES: list[str] = [line for block in _SHELL.findall(README) for line in block.splitlines()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to type in, without a key, a store, or anybody to be asked."""
    for name in ("HANDRAIL_STORE", "HANDRAIL_MODEL", "OPENAI_API_KEY", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(begin: str, word: str) -> str:
    """The one command line of the README's blocks for a shell that begins so, and has this word."""
    lines = [line for line in _LINES if line.startswith(begin) and word in line]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.usefixtures("place")
def test_the_commands_of_the_readme_print_what_is_shown() -> None:
    """In an empty folder, each after those above it; the first one prints the second."""
    assert [line.split()[1] for line, _ in TYPED] == ["new", "run"]
    assert f"  {TYPED[1][0]}\n" in TYPED[0][1]
    for line, shown in TYPED:
        code, printed = typed(line)
        assert (code, comparable(printed)) == (0, comparable(shown)), line


def test_calls_that_change_something_are_denied_in_a_pipe_until_rule_allows_them(place: Path, wording: Wording) -> None:
    """The rule of the README, put below those that are there, is the cure; what only reads needs none."""
    (rule,) = re.findall(r"`(allow: \[.*?\])`", README)
    assert typed(TYPED[0][0])[0] == 0
    line = TYPED[1][0].removesuffix(" --approve approve-all")
    assert line != TYPED[1][0]
    code, printed = typed(line)
    assert code == 1
    assert [shown for shown in printed.splitlines() if "list_notes(" in shown or "add_note(" in shown] == wording
    with (place / "notes" / "approval.yaml").open("a", encoding="utf-8") as rules:
        rules.write(f"{rule}\n")
    code, printed = typed(line)
    assert (code, comparable(printed)) == (0, comparable(TYPED[1][1]))


@pytest.mark.usefixtures("place")
def test_a_real_model_needs_what_the_readme_says(wording: Wording) -> None:
    """Its key, and its extra, which is there in a checkout; no model is asked without them."""
    assert typed(TYPED[0][0])[0] == 0
    code, printed = typed(command("handrail run notes", "openai"))
    assert (code, printed) == (2, wording)
    assert "`OPENAI_API_KEY`" in README
