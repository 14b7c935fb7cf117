"""What the README and the docs say of the repository is so: links, names, commands, extras, indexes."""

from __future__ import annotations

import gc
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import own_paths
from benchmarks.__main__ import GROUPS, WHEN_NAMED
from benchmarks.calls import cases
from benchmarks.compare import CASES
from benchmarks.timing import time_calls
from handrail.runtime import Step
from tests.architecture.sources import ROOT, listed
from tests.docs.diagrams import steps
from tests.docs.figures import PAGE, README, read_rows, shorten, with_costs
from tests.docs.kit import Link, names_in, read_anchors, read_links

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_RULE = re.compile(r"\|(?: ?:?-+:? ?\|)+")

DOCS = ROOT / "docs"
DECISIONS = DOCS / "contributing" / "decisions"
RECIPES = DOCS / "recipes"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
    ROOT / "tests" / "documents" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]


def test_every_link_leads_somewhere() -> None:
    """Files and folders exist, and so do the headings that are linked."""
    faults = [fault for page in PAGES for link in read_links(page) if (fault := _fault(link))]
    assert not faults, listed(faults)


def test_every_name_that_is_linked_is_defined_there() -> None:
    """A link to a module whose text is code names something that the module defines."""
    faults = [
        f"{_from_root(link.page)}: {link.path} defines no {name}"
        for page in PAGES
        for link in read_links(page)
        if link.target.suffix == ".py" and link.target.exists()
        for name in link.names
        if name not in names_in(link.target)
    ]
    assert not faults, listed(faults)


def test_every_row_of_a_table_is_in_a_table() -> None:
    """A row that follows a blank line, or text, is a paragraph with bars."""
    faults = [f"{_from_root(page)}: {row}" for page in PAGES for row in _loose_rows(page)]
    assert not faults, listed(faults)


@pytest.mark.parametrize("folder", [DOCS, DECISIONS, RECIPES], ids=lambda folder: str(folder.relative_to(ROOT)))
def test_every_page_is_in_the_index_of_its_folder(folder: Path) -> None:
    """The index links each page, in the order of their names where they are numbered."""
    linked = [link.target for link in read_links(folder / "README.md") if link.target.is_relative_to(folder)]
    pages = [page for page in sorted(folder.rglob("*.md")) if page.name != "README.md"]
    apart = () if folder != DOCS else (DECISIONS, RECIPES)
    assert set(linked) >= {page for page in pages if not any(map(page.is_relative_to, apart))}
    if folder == DECISIONS:
        assert linked == pages


def test_every_page_is_of_one_kind() -> None:
    """A page teaches, follows a task, is copied, explains, is looked up, or for contributors; two are for all."""
    at_top = {page.name for page in DOCS.iterdir() if page.is_file()}
    assert at_top <= {"README.md", "glossary.md", "glossary-forbidden.toml", "ruff.toml"}
    kinds = {"contributing", "explanation", "how-to", "recipes", "reference", "tutorial"}
    assert {page.name for page in DOCS.iterdir() if page.is_dir()} == kinds


def test_the_readme_of_each_example_fits_a_screen_and_has_a_picture() -> None:
    """Every folder of examples has one, and the page of all examples links it."""
    examples = ROOT / "examples"
    linked = {link.target for link in read_links(examples / "README.md")}
    for folder in (path for path in examples.iterdir() if path.is_dir()):
        lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 48, folder
        assert "```text" in lines, folder
        assert folder / "README.md" in linked


def test_decisions_are_indexed_under_their_titles() -> None:
    """The index says what was decided, in the words of the record."""
    titles = {link.target: link.text for link in read_links(DECISIONS / "README.md")}
    for page in sorted(DECISIONS.glob("0*.md")):
        head = page.read_text(encoding="utf-8").partition("\n")[0]
        assert head == f"# {int(page.name[:4])}. {titles[page]}"


def test_the_steps_of_the_page_are_those_of_the_pipeline() -> None:
    """As many, in the same order; and so has the diagram."""
    text = (DOCS / "explanation" / "a-call.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \| ", text, re.MULTILINE)]
    assert numbers == [int(number) for number, _, _ in steps()] == [step.number for step in Step]


def test_the_extras_of_the_readme_are_those_of_the_project() -> None:
    """Whoever types one gets it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| extra |")[2].partition("\n\n")[0]
    named = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall("`([^`]+)`", row)]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(named) == sorted(project["optional-dependencies"])


def test_the_failures_of_the_readme_are_those_of_the_comparison() -> None:
    """Four rows of that table, and each of its columns with Handrail in something else says the same."""
    whole, few = (_rows_by_title(page) for page in (DOCS / "explanation" / "comparison.md", ROOT / "README.md"))
    heads = few.pop("")
    assert len(few) == 4
    for title, cells in few.items():
        there = dict(zip(whole[""], whole[title], strict=True))
        with_handrail = {cell for head, cell in there.items() if head.startswith("Handrail, ")}
        assert cells == [*(there[head] for head in heads[:-1]), *with_handrail]
    claims = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n| claim |")[2].partition("\n\n")[0]
    assert len(claims.splitlines()) - 2 <= 10


def _rows_by_title(page: Path) -> dict[str, list[str]]:
    """The rows of the table by failure of a page, and its heads under an empty title."""
    table = re.split(r"\n\| \| (?=\w+(?: calls)? \|)", page.read_text(encoding="utf-8"))[1].partition("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if not row.startswith("|---")]
    return {"": rows[0], **{row[0]: row[1:] for row in rows[1:]}}


def test_the_commands_that_are_named_can_be_made() -> None:
    """`make ...` in any page is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8"))}
    assert named
    assert named <= targets


def test_the_figures_are_those_of_the_benchmark() -> None:
    """The page of measurements has a row for each case and each bound of `make bench`, and for nothing else."""
    page = PAGE.read_text(encoding="utf-8")
    rows = read_rows(page)
    assert rows[: len(cases())] == [*cases()]
    for group in GROUPS.values():
        bounds = [shorten(bound.label, group.floor) for bound in group.bounds]
        labels = [*bounds, *(limit.label for limit in group.limits)]
        assert [label for label in labels if rows.count(label) != 1] == []
        assert {name for bound in group.bounds for name in (bound.case, bound.floor)} <= {*rows}
    assert {*CASES} <= {*rows}


def test_the_benchmark_leaves_the_garbage_collector_on() -> None:
    """What a call leaves alive or in cycles is part of its time, and what the collector takes of it is counted."""
    states: list[bool] = []

    def call() -> None:
        states.append(gc.isenabled())
        gc.collect()

    timing = time_calls(call, 2)
    assert states == [True, True]
    assert 0.0 < timing.collector <= timing.time


def test_what_takes_minutes_is_measured_when_it_is_named() -> None:
    """`make bench` without `--only` runs no command of the repository, and so no tests."""
    assert GROUPS.keys() >= WHEN_NAMED
    assert {name for name, group in GROUPS.items() if any(limit.unit == "s" for limit in group.limits)} == WHEN_NAMED


def test_the_costs_of_the_readme_are_those_of_the_benchmark() -> None:
    """A row for each case of the group, in microseconds of two digits; a run of other groups leaves them."""
    readme = README.read_text(encoding="utf-8")
    cases = [own_paths.PYDANTIC_AI, own_paths.READ, own_paths.STATE, own_paths.STORED, own_paths.EXTERNAL]
    assert read_rows(readme) == cases
    renewed = with_costs(readme, {"own paths": {"microseconds": dict.fromkeys(cases, 1234.5)}})
    assert read_rows(renewed) == cases
    assert renewed.count(" | 1,200 |") == len(cases)
    assert with_costs(renewed, {"calls": {}}) == renewed


def _fault(link: Link) -> str:
    where = f"{_from_root(link.page)}: [{link.text}]({link.path}{'#' if link.anchor else ''}{link.anchor})"
    if not link.target.exists():
        return f"{where} leads nowhere"
    if link.anchor and link.anchor not in read_anchors(link.target):
        return f"{where}: there is no such heading"
    return ""


def _loose_rows(page: Path) -> Iterator[str]:
    """The first rows of tables that have no line below them which makes them a header."""
    lines = ["", *_FENCED.sub("", page.read_text(encoding="utf-8")).splitlines(), ""]
    for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
        if line.startswith("|") and not before.startswith("|") and not _RULE.fullmatch(after):
            yield line


def _from_root(page: Path) -> Path:
    return page.relative_to(ROOT)
