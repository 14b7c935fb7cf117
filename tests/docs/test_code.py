"""The code in the README and in the docs runs, and prints what they show; a call enters what its page says."""

from __future__ import annotations

import importlib
import logging
import re
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import logfire_api
import pytest
from pytest_examples import CodeExample, EvalExample, find_examples
from ruamel.yaml import YAML

from handrail.telemetry import instrument
from tests.architecture.sources import ROOT
from tests.docs.kit import SKILL, Link, read_links, unwrapped
from tests.docs.typed_pages import DOCS, Command, File, Terminal, follow, read_steps, typed_pages
from tests.extent import FULL
from tests.providers.chat import Chat
from tests.providers.messages import Messages
from tests.providers.programs import OWN_LOOP, PYDANTIC_AI, end_kept_loop
from tests.providers.responses import Responses
from tests.providers.wire import serving
from tests.telemetry.collector import collecting

README = ROOT / "README.md"


YOUR_OWN_DATABASE = ROOT / "docs" / "how-to" / "your-own-database.md"
"""Its programs need a server: `test_how_to.py` runs them."""

TRACE_CALLS = ROOT / "docs" / "how-to" / "trace-calls.md"
"""Its programs send to a collector."""

DURABLE_ENGINES = ROOT / "docs" / "how-to" / "durable-engines.md"
"""Its programs are started again when they have been killed: `test_engines.py` runs them."""


_SHOWN = re.compile(r"\s*```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def with_code() -> dict[Path, list[CodeExample]]:
    """The pages that hold code, each with its blocks in their order."""
    pages = sorted({*(ROOT / "docs").rglob("*.md")} - {YOUR_OWN_DATABASE, DURABLE_ENGINES, *typed_pages()})
    examples = {page: list(find_examples(page)) for page in (SKILL, *pages)}
    return {page: found for page, found in examples.items() if found}


def shown_below(example: CodeExample) -> str:
    """What a page says that a block prints."""
    lines = example.path.read_text(encoding="utf-8").splitlines(keepends=True)
    match = _SHOWN.match("".join(lines[example.end_line :]))
    return match[1] if match else ""


@pytest.fixture
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Code of the docs is a program: it becomes `__main__`, and may turn the log off."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    disabled = logging.root.manager.disable
    yield
    logging.disable(disabled)


@pytest.fixture
def _providers(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of their own for the programs of a page, and for those that ask a model a server in its place."""
    monkeypatch.chdir(tmp_path)
    if page == TRACE_CALLS:
        # In place of the SDK of Logfire, which sends to a service, the one that does nothing.
        monkeypatch.setitem(sys.modules, "logfire", logfire_api)
        with collecting() as collector:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            yield
        instrument().close()  # in place of that of the page
        assert [span.name for _, span in collector.spans()] == ["execute_tool pay"]
        return
    if page not in {OWN_LOOP, PYDANTIC_AI}:
        yield
        end_kept_loop()
        return
    with serving(Chat(), Responses(), Messages()) as provider:
        for name, value in provider.environment().items():
            monkeypatch.setenv(name, value)
        yield
    end_kept_loop()


@pytest.mark.parametrize("page", with_code(), ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.usefixtures("_as_it_was", "_providers")
def test_the_code_of_a_page_runs_from_top_to_bottom_and_prints_what_is_shown(
    page: Path, eval_example: EvalExample, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block sees the names of those above it."""
    names: dict[str, Any] = {}
    for example in with_code()[page]:
        names = eval_example.run(example, module_globals=names)
        assert unwrapped(capsys.readouterr().out) == unwrapped(shown_below(example)), str(example)


def test_the_first_code_of_the_readme_survives_kill_in_ten_lines() -> None:
    """With its imports, without blank lines; the page that is typed shows both starts."""
    program, first, second, *_ = read_steps(README)
    assert isinstance(program, File)
    assert isinstance(first, Command)
    assert isinstance(second, Command)
    assert len(program.text.split("\n")) - program.text.split("\n").count("") == 10
    assert (first.line, first.shown.splitlines()[-1]) == (second.line, "Killed")


def test_six_lines_bring_handrail_to_an_agent_of_pydantic_ai() -> None:
    """The README marks them."""
    files = {step.name: step.text for step in read_steps(README) if isinstance(step, File)}
    assert files["agent.py"].count("# +") == 6


def test_the_skill_says_when_it_is_used_and_is_short() -> None:
    """Its name is that of its folder; a model reads the description before the rest, and has at most 900 words then."""
    _, front, text = SKILL.read_text(encoding="utf-8").split("---\n", 2)
    reader: Any = YAML(typ="safe")  # has no types
    fields = reader.load(front)
    assert fields.keys() == {"name", "description"}
    assert fields["name"] == SKILL.parent.name
    assert len(fields["description"]) <= 1_024
    assert len(text.split()) <= 900
    assert [*read_links(SKILL)] == []  # it is read without the repository


PAGE = ROOT / "docs" / "explanation" / "a-call.md"


WALK = 2
"""How many blocks of code the walk has: the imports, and the call."""


ONLY_IF_IT_WAITS = "CallTurn.acquire"


def functions() -> list[tuple[int, str, CodeType]]:
    """The functions that the table links: step, name and code, in the order of the table."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    found: list[tuple[int, str, CodeType]] = []
    links = {(name, link.target): link for link in read_links(PAGE) for name in link.names}
    for row in rows:
        step, *cells = (cell.strip() for cell in row.strip("|").split(" | "))
        if step.isdecimal():
            named = [(name, link) for (name, _), link in links.items() if f"[`{name}`](" in cells[1]]
            named.sort(key=lambda pair: cells[1].index(f"[`{pair[0]}`]("))
            found += [(int(step), name, find_code(name, link)) for name, link in named]
    return found


def find_code(name: str, link: Link) -> CodeType:
    """The code of a function or method; of a class that is a context manager, that of its beginning."""
    module = ".".join(Path(link.target).relative_to(ROOT / "src").with_suffix("").parts)
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    function = vars(value)["__enter__"] if isinstance(value, type) else value
    code: CodeType = function.__code__
    return code


@contextmanager
def entered() -> Generator[list[CodeType]]:
    """The code of the functions that are entered in the block, in their order."""
    found: list[CodeType] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.append(frame.f_code)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.fixture
def seen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[CodeType]:
    """What the call of the page enters."""
    walk = ModuleType("walk")
    monkeypatch.setitem(sys.modules, "walk", walk)  # where its dataclasses are found
    monkeypatch.setattr(logging, "disable", lambda: None)
    names = vars(walk)
    imports, call = list(find_examples(PAGE))[:WALK]
    exec(compile(imports.source, str(PAGE), "exec"), names)  # noqa: S102 - the code of the page
    with entered() as found:
        exec(compile(call.source, str(PAGE), "exec"), names)  # noqa: S102
    assert "replayed: False" in capsys.readouterr().out
    return found


def test_the_call_enters_the_functions_in_the_order_of_the_page(seen: list[CodeType]) -> None:
    """Each is entered first after those before it; only a call that waits enters the one of step 3."""
    steps = functions()
    assert sorted({step for step, _, _ in steps}) == list(range(1, 14))
    firsts = [(seen.index(code), name) for _, name, code in steps if name != ONLY_IF_IT_WAITS]
    assert [name for _, name in sorted(firsts)] == [name for _, name in firsts]


def test_twelve_questions_are_answered_by_four_modules() -> None:
    """Who reads them knows what a call does; together they have at most 1,200 lines."""
    section = PAGE.read_text(encoding="utf-8").rpartition("\n## ")[2]
    questions = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    answers = {name for _, answer in questions for name in re.findall(r"runtime/(\w+\.py)\)", answer)}
    modules = ROOT / "src" / "handrail" / "runtime"
    assert (len(questions), answers) == (12, {"plan.py", "call.py", "invoke.py", "failures.py"})
    assert sum(len((modules / name).read_text(encoding="utf-8").splitlines()) for name in answers) <= 1_200


PAGES = [page for page in typed_pages() if page.parent != DOCS / "recipes"]
"""`test_recipes.py` follows those, and the README."""


SLOW = DOCS / "how-to" / "test-tools.md"
"""It starts pytest, which starts processes: the full form alone follows it."""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if FULL or page != SLOW], ids=lambda page: str(page.relative_to(ROOT))
)
@pytest.mark.short(2)
@pytest.mark.timeout(120)  # a page has up to a dozen commands
def test_a_page_works_as_it_is_typed(page: Path, at: Terminal, tmp_path: Path) -> None:
    """In an empty folder, from top to bottom."""
    follow(page, tmp_path, at.type)


def test_every_page_of_the_tutorial_is_typed() -> None:
    """Each has a program, and a command that starts it or an agent."""
    pages = sorted((DOCS / "tutorial").glob("*.md"))
    assert pages
    assert {*pages} <= {*PAGES}


def test_every_program_of_a_typed_page_is_saved() -> None:
    """A block of Python without a name would not run."""
    for page in [README, *typed_pages()]:
        files = sum(isinstance(step, File) and step.name.endswith(".py") for step in read_steps(page))
        assert page.read_text(encoding="utf-8").count("\n```python\n") == files, page
