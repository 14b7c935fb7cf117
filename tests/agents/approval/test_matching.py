"""Globs of rules over calls, and the path filter that rules on paths become."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents import ApprovalRules, Rule
from handrail.agents.approval.decisions import ApprovalMode
from handrail.agents.approval.matching import (
    Reading,
    argument_path,
    glob,
    matches_agents,
    matches_argument,
    matches_call,
    matches_name,
    shortest,
)
from handrail.agents.approval.path_rules import FILE_TOOLS, RulePaths, reached_paths, rule_filter
from handrail.contrib.tools import VfsToolsSection
from handrail.errors import AgentError
from handrail.filesystem import InMemoryFilesystem, PathFilter
from handrail.filesystem.path_filters import folded
from tests.agents.kit import refusal
from tests.wording import Wording

SLASHES: dict[Reading, list[tuple[str, list[str], list[str]]]] = {
    "narrow": [
        ("", [""], ["a"]), ("a", ["a"], ["", "A", "ab", "ba"]), ("*", ["", "a", "a b\n"], ["a/b", "/"]),
        ("a*c", ["ac", "abc", "acc"], ["a/c", "acd", "ca"]), ("**", ["", "a", "a/b", "/"], []),
        ("***", ["", "a/b"], []), ("a**c", ["ac", "a/b/c"], ["a/b"]), ("?", ["a", "\n", "é"], ["", "ab", "/"]),
        ("a/*", ["a/", "a/b"], ["a", "a/b/c"]), ("a/**", ["a/", "a/b", "a/b/c"], ["a", "ab/c"]),
        ("**/b", ["b", "a/b", "a/a/b", "/b"], ["ab", "a/ab", "b/a"]), ("**/*", ["", "b", "a/b"], []),
        ("**/**/b", ["b", "a/b"], ["ab"]), ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("a**/b", ["a/b", "a/x/b", "aa/b"], ["b"]), ("**a/b", ["a/b", "x/a/b", "xa/b"], ["b"]),
        ("**/a/**/b", ["a/b", "x/a/y/b"], ["b", "a"]), ("[ab]", ["a", "b"], ["c", "ab", ""]),
        ("[a-c]x", ["ax", "cx"], ["dx", "-x"]), ("[c-a]", [], ["a", "b", "c", "-"]), ("[-a]", ["-", "a"], ["b"]),
        ("[a-]", ["-", "a"], ["b"]), ("[!a]", ["b", "!"], ["a", "", "/"]), ("[^a]", ["b"], ["a", "/"]),
        ("[]]", ["]"], ["["]), ("[!]]", ["a"], ["]"]), ("[*]", ["*"], ["a"]), ("[?]", ["?"], ["a"]), ("[/]", [], ["/"]),
        ("[a", ["[a"], ["a"]), ("[]", ["[]"], [""]), ("[!]", ["[!]"], ["a"]), ("=a", ["=a"], ["a"]),
        ("*" * 3 + "/b", ["b", "a/b"], ["ab"]),
    ],
    "wide": [
        ("*", ["", "a/b"], []), ("rm *", ["rm -r /srv"], ["rm", "farm "]), ("a?b", ["a/b"], ["ab"]),
        ("a[!x]b", ["a/b"], ["axb"]), ("**/b", ["b", "a/b"], ["ab"]), ("*/b", ["a/b", "a/x/b", "/b"], ["b"]),
    ],
}  # fmt: skip
"""Only `**` and slashes themselves fit slashes, and everything if read widely; `**/` begins at the start of a part."""


@pytest.mark.parametrize("reading, row", [(reading, row) for reading, rows in SLASHES.items() for row in rows])
def test_a_glob_read_narrowly_stays_between_slashes(reading: Reading, row: tuple[str, list[str], list[str]]) -> None:
    """The whole text must fit, letter for letter."""
    pattern, fitting, others = row
    assert [text for text in fitting if not glob(pattern, reading)(text)] == []
    assert [text for text in others if glob(pattern, reading)(text)] == []


def plainly_fits(pattern: str, text: str, *, narrow: bool) -> bool:
    """What the module says of globs without brackets, tried out in every way."""

    @cache
    def fits(at: int, to: int) -> bool:
        if at == len(pattern):
            return to == len(text)
        rest = pattern[at:]
        if rest.startswith("**/") and pattern[:at][-1:] in {"", "/"}:
            return fits(at + 3, to) or any(text[end] == "/" and fits(at + 3, end + 1) for end in range(to, len(text)))
        crosses = rest.startswith("**")
        if rest[0] == "*":
            after = at + 1 + crosses
            ends = range(to, len(text) + 1)
            return any((crosses or not narrow or "/" not in text[to:end]) and fits(after, end) for end in ends)
        if to == len(text):
            return False
        fitting = text[to] != "/" or not narrow if rest[0] == "?" else text[to] == rest[0]
        return fitting and fits(at + 1, to + 1)

    return fits(0, 0)


PATTERNS = st.lists(st.sampled_from(["a", "b", "/", "?", "*", "**", "**/", "/**/"]), max_size=7).map("".join)


@given(PATTERNS, st.text("ab/", max_size=9), st.booleans())
def test_a_glob_fits_what_trying_every_way_fits(pattern: str, text: str, narrow: bool) -> None:
    """Moving all places together gives the same as going each way on its own."""
    pattern = re.sub(r"\*{3,}", "**", pattern)  # more than two stars mean what two do
    assert glob(pattern, "narrow" if narrow else "wide")(text) == plainly_fits(pattern, text, narrow=narrow)


@given(PATTERNS, st.text("ab/", max_size=9))
def test_path_fits_with_the_folders_that_it_lies_in(pattern: str, path: str) -> None:
    """Found in one go."""
    above = [path[:at] for at, character in enumerate(path) if character == "/"]
    fits = any(glob(pattern, "wide")(each) for each in (path, *above))
    assert glob(pattern, "wide", above=True)(path) == fits


@pytest.mark.parametrize(
    "pattern", ["*a" * 50 + "b", "**/" + "a*/**/" * 30 + "b", "?" * 40 + "**a**a**a", "[!b]*" * 40]
)
def test_hostile_globs_and_texts_hold_nothing_up(pattern: str) -> None:
    """However many stars: going each way on its own would take for ever."""
    for text in ("a" * 20_000, "a/" * 10_000):
        assert glob(pattern, "narrow")(text) in {True, False}


def test_a_glob_that_is_too_long_is_refused() -> None:
    """When it is declared."""
    with pytest.raises(AgentError):
        Rule("?" * 1_000_000)


@given(st.text(alphabet="ab*?[]!^-/\\.\n{}é\ud800", max_size=12), st.text(max_size=12))
def test_every_text_is_a_glob(pattern: str, text: str) -> None:
    """Brackets that do not close are characters like others, and nothing raises."""
    assert glob(pattern, "narrow")(text) <= glob("**", "narrow")(text)
    assert glob(pattern, "wide")(text) >= glob(pattern, "narrow")(text)


def fits(pattern: str, value: Any, reading: Reading) -> bool:
    """Whether a glob over `path` fits a call with that argument."""
    return matches_argument(pattern, argument_path("path"), {"path": value}, reading)


def test_a_glob_over_tools_takes_slashes_for_letters() -> None:
    """A name of a tool has no folders."""
    assert matches_name("*", "server/lookup")
    assert matches_name("write_?*", "write_file")
    assert not matches_name("write_*", "rewrite_file")


def test_a_glob_over_agents_is_about_who_called_whom() -> None:
    """`*` is one agent, `**` any number."""
    assert matches_agents("desk/*", ("desk", "research"))
    assert not matches_agents("desk/*", ("desk",))
    assert not matches_agents("desk/*", ("desk", "research", "reader"))
    assert matches_agents("**/reader", ("desk", "research", "reader"))
    assert matches_agents("**", ())


WIDE: list[tuple[str, Any]] = [
    ("**/.env", ".env"), ("**/.env", "./.env"), ("**/.env", "a/../.env"), ("**/.env", "a//.env"),
    ("**/.env", "a/.env/"), ("**/.env", "a/./.env"), ("**/.env", "/srv/.env"), ("**/.env", "../.env"),
    ("**/.env", "a\\.env"), ("**/.env", ".ENV"), ("**/.env", "x/../../.Env"), ("**/.env", "~/.env"),
    ("**/.env", "C:\\.env"), ("secrets/**", "secrets"), ("secrets/**", "./secrets/"), ("secrets/**", "a/../secrets/x"),
    ("./secrets//*", "secrets/x"), ("caf\u00e9/**", "cafe\u0301/x"), ("STRASSE*", "stra\u00dfe 1"),
    ("[!a-z]*", "Readme"), ("*.key", "deep/in/a.key"), ("rm *", "rm -rf /"), ("rm *", ["rm", "-rf", "/"]),
    ("/etc/**", ["cat", "/etc/passwd"]), ("true", True), ("5", [1, [5.0]]), ('{"a":*}', {"a": 1}), ("null", None),
    ("**/.env", {"p": ".env"}), ("**/.env", [{"p": {"q": ["a", {"r": "x/.ENV"}]}}]), ("**/.env", {".env": 1}),
    ("rm *", {"argv": ["rm", "-rf", "/"]}), ("7", {"a": [7]}),
]  # fmt: skip
"""Roundabout ways, slashes of either kind and another case lead to the same file; what could be meant counts."""

NOT_WIDE: list[tuple[str, Any]] = [
    ("**/.env", "env"), ("**/.env", ".envrc"), ("5", 50), ("a", []), ("a b", ["ab"]), ("/**", ""),
    ("a", {"b": ["c", 1]}),
]  # fmt: skip
"""Wide is not everything."""

NARROW: list[tuple[str, Any]] = [
    ("reports/**", "reports/a/b.md"), ("reports/*", "reports/a.md"), ("./reports/*", "reports/a.md"),
    ("./reports/*", "./reports/a.md"), ("**", "anything/../at all\n"), ("**/*.md", "a/b.md"), ("/srv/**", "/srv/a"),
    ("../*", "../a"), ("~/notes/*", "~/notes/a"), ("https://example.org/**", "https://example.org/a/b"),
    ("reports/*", ["reports/a", "reports/b"]), ("git log*", ["git", "log", "-3"]), ("git log*", "git log -3"),
    ("false", False), ("1", 1.0), ("3", [3, 3]), ('{"a":*}', {"a": 1}),
]  # fmt: skip
"""What is plainly meant: as written and in its shortest form, and every item of a list."""

NOT_NARROW: list[tuple[str, Any]] = [
    ("reports/**", "reports/../../etc/passwd"), ("reports/**", "reports/../.env"), ("reports/**", "reports\\..\\.env"),
    ("reports/**", "Reports/a"), ("reports/**", "reports"), ("reports/*", "reports/a/b"), ("**/*.md", "/etc/a.md"),
    ("**/*.md", "../a.md"), ("**/*.md", "~/a.md"), ("**/*.md", "C:/a.md"), ("../**", "../../a"),
    ("https://example.org/pub/**", "https://example.org/pub/../admin"), ("reports/*", ["reports/a", ".env"]),
    ("reports/*", []), ("**", ["a", list[str]()]), ("my reports/**", ["my", "reports/../../etc"]),
    ("my reports/**", ["my reports/a", "../../etc"]), ("git log*", ["git", "log", 3]), ("reports/*", "reports/./a.md"),
    ("*", ["a", {"a": "b/c"}]), ("*", {"p": "notes"}), ("**", {"p": "notes"}), ("{*", {"p": "a/b"}),
]  # fmt: skip
"""What could mean anything else is not allowed."""


@pytest.mark.parametrize("pattern, value", WIDE)
def test_a_wide_glob_cannot_be_dodged_by_spelling(pattern: str, value: Any) -> None:
    """One reading that fits is enough."""
    assert fits(pattern, value, "wide")


@pytest.mark.parametrize("reading, row", [("wide", row) for row in NOT_WIDE] + [("narrow", row) for row in NOT_NARROW])
def test_a_narrow_glob_holds_only_if_every_reading_fits(reading: Reading, row: tuple[str, Any]) -> None:
    """And a wide one not for what nobody could mean by it."""
    assert not fits(*row, reading)


@pytest.mark.parametrize("pattern, value", NARROW)
def test_a_narrow_glob_fits_what_is_plainly_meant(pattern: str, value: Any) -> None:
    """So that rules allow what they say."""
    assert fits(pattern, value, "narrow")


@pytest.mark.parametrize("reading", ["narrow", "wide"])
def test_an_argument_that_is_not_there_does_not_fit(reading: Reading) -> None:
    """A rule about a path is not about tools without one."""
    for place in ("path", "options.path", "steps[0]", "steps[0].title", "steps[*]", "name.first"):
        assert not matches_argument("**", argument_path(place), {"name": "x", "steps": []}, reading)


def test_a_place_may_be_deep_or_several() -> None:
    """Keys and positions lead on; a star is every item or key, of which a narrow glob must fit each."""
    arguments = {"options": {"force": True}, "steps": [{"title": "a"}, {"title": "b"}], "by": {"x": ["1"], "y": ["2"]}}

    def found(place: str, pattern: str, reading: Reading = "narrow") -> bool:
        return matches_argument(pattern, argument_path(place), arguments, reading)

    assert found("options.force", "true")
    assert found("steps[1].title", "b")
    assert found("steps[*].title", "[ab]")
    assert not found("steps[*].title", "a")
    assert found("steps[*].title", "a", "wide")
    assert found("by.*[0]", "[12]")
    assert found("*[0]", '{"title":"a"}', "wide")
    assert not found("steps[*].body", "**")
    assert not found("steps.title", "**")
    assert not found("steps[2]", "**")


@pytest.mark.parametrize(
    "place",
    ["", ".", "a.", ".a", "a..b", "[0]", "a[", "a[]", "a[x]", "a[-1]", "a[0]b", "a]", "a.[0]", "a*", "a[0].", "["],
)
def test_a_place_that_leads_nowhere_is_told(place: str, wording: Wording) -> None:
    """The message shows how places are written."""
    with refusal(AgentError, wording):
        argument_path(place)


def nested(depth: int) -> list[Any]:
    """A list in a list, and so on, around one text."""
    value: list[Any] = ["x"]
    for _ in range(depth):
        value = [value]
    return value


def test_lists_in_lists_are_as_one_list() -> None:
    """However deep, up to what JSON is taken to hold."""
    assert fits("x", nested(190), "narrow")
    assert fits("x", [["y"], nested(9)], "wide")
    assert not fits("x", [["y"], nested(9)], "narrow")


def holding_itself() -> list[Any]:
    """A list without end."""
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [float("nan"), object(), nested(5_000), holding_itself(), ["\ud800"]])
def test_what_cannot_be_written_is_never_allowed(value: object) -> None:
    """It cannot be judged, so whatever asks or denies holds."""
    assert not fits("**", value, "narrow")
    assert fits("nothing like it", value, "wide")


def fits_both(pattern: str, arguments: Any, written: Any, reading: Reading) -> bool:
    """Whether a glob over `path` fits a call that runs with `arguments` and was written as `written`."""
    return matches_call(pattern, argument_path("path"), arguments, written, reading)


SHOWN: dict[str, dict[str, Any]] = {
    "by the same name": {"path": "x/.env"},
    "around all of it": {"file": {"path": "x/.env"}},
    "in a mapping": {"path": {"p": ".env"}},
}


@pytest.mark.parametrize("written", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize("arguments", [{}, {"p": ".env"}, {"path": "notes.md"}])
def test_a_wide_glob_finds_what_was_written_under_any_name_that_it_has_by_now(arguments: Any, written: Any) -> None:
    """A serializer that renames, hides or changes an argument hides it from no rule."""
    assert fits_both("**/.env", arguments, written, "wide")
    assert fits_both("**/.env", {"path": ".env"}, {}, "wide")
    assert not fits_both("**/.env", arguments, {"file": "x/.env"}, "wide")
    assert not fits_both("**/.env", arguments, None, "wide")


@pytest.mark.parametrize("written, holds", [
    (None, True), ({}, True), ({"p": "elsewhere"}, True), ({"path": "notes.md"}, True),
    ({"file": {"path": "notes.md"}}, True), ({"path": ".env"}, False), ({"path": {"p": "notes.md"}}, False),
    ({"file": {"path": ".env"}}, False),
])  # fmt: skip
def test_a_narrow_glob_fits_what_runs_and_what_was_written(written: Any, holds: bool) -> None:
    """What was written counts where it has the argument; what will run must have it."""
    assert fits_both("*.md", {"path": "notes.md"}, written, "narrow") is holds
    assert not fits_both("*.md", {}, written, "narrow")


PATHS = st.lists(st.sampled_from(["a", "b", "..", ".", "", ".env", "*", "~"]), max_size=5).map("/".join)


GLOBS = st.lists(st.sampled_from(["a", "b", "*", "**", "?", ".env", "..", "", "[ab]"]), min_size=1, max_size=4).map(
    "/".join
)


@given(GLOBS, st.one_of(PATHS, st.lists(PATHS, min_size=1, max_size=3)))
def test_what_is_allowed_narrowly_is_found_widely(pattern: str, value: Any) -> None:
    """So the same glob under `deny` never lets through what it fits under `allow`."""
    if fits(pattern, value, "narrow"):
        assert fits(pattern, value, "wide")


@given(PATHS)
def test_what_is_allowed_in_a_folder_is_in_it(path: str) -> None:
    """No spelling leads out of `a/**`."""
    if fits("a/**", path, "narrow"):
        assert shortest(path).startswith("a/")


@given(PATHS)
def test_the_shortest_form_is_its_own(path: str) -> None:
    """Nothing is left to shorten."""
    assert shortest(shortest(path)) == shortest(path)


SOME_PATHS = (".env", "a/.env", "secrets/key", "secrets", "notes.md")


def rule(tool: str, glob: str = "**/.env", argument: str = "path", **also: Any) -> Rule:
    """A rule on a path."""
    return Rule(tool, {argument: glob}, **also)


def kept(
    verdict: str, *rules: Rule, mode: ApprovalMode = "ask", path: tuple[str, ...] = ("desk",), prefix: str = ""
) -> str:
    """The sets of the filter that a rule goes into, in words."""
    every: dict[str, Any] = {verdict: rules}
    found = rule_filter(ApprovalRules(**every), path, mode, prefix=prefix)
    return " ".join(each.name for each in fields(PathFilter) if getattr(found, each.name))


def fitting(glob: str) -> list[str]:
    """Those of a few paths that a rule with this glob keeps from being read."""
    found = rule_filter(ApprovalRules(deny=(rule("read_file", glob),)), ("desk",), "ask")
    return [path for path in SOME_PATHS if found.unreadable(path) is not None]


def test_file_tools_are_those_of_the_suite_with_their_paths() -> None:
    """A tool that is added, or gets another argument that is a path, is entered here too."""
    tools = {tool.name: tool for tool in VfsToolsSection(InMemoryFilesystem()).tools}
    assert set(FILE_TOOLS) == set(tools)
    for name, arguments in FILE_TOOLS.items():
        properties = tools[name].parameters_schema["properties"]
        assert set(arguments) == {each for each in properties if each.endswith("path")}


@pytest.mark.parametrize("verdict, tool, argument, into", [
    ("deny", "read_file", "path", "reading"), ("deny", "read_*", "path", "reading"),
    ("deny", "*", "path", "reading writing"), ("deny", "*", "*", "reading writing"),
    ("deny", "list_files", "path", "removing searching"), ("deny", "g*_files", "path", "removing searching"),
    ("deny", "[gw]*_file*", "path", "writing searching"), ("deny", "write_file", "path", "writing"),
    ("deny", "edit_file", "path", "writing"), ("deny", "move_file", "new_path", "writing"),
    ("deny", "move_file", "path", "removing"), ("deny", "remove_file", "path", "removing"),
    ("deny", "*", "new_path", "writing"), ("deny", "*", "file", ""), ("deny", "lookup", "path", ""),
    ("ask", "read_file", "path", "removing searching"), ("ask", "list_files", "path", "removing listing"),
    ("ask", "grep_files", "path", "removing listing"), ("ask", "[rg]*_file*", "path", "removing listing"),
    ("ask", "[rm]*_file", "path", "searching holding"), ("ask", "*", "path", "listing holding"),
    ("ask", "write_file", "path", "holding"), ("ask", "remove_file", "path", "holding"),
    ("ask", "move_file", "new_path", "holding"), ("ask", "*", "file", ""), ("allow", "*", "path", ""),
])  # fmt: skip
def test_where_a_rule_on_a_path_holds(verdict: str, tool: str, argument: str, into: str) -> None:
    """What it says of one tool holds for every way to do the same."""
    assert kept(verdict, rule(tool, argument=argument)) == into


def test_rule_about_more_than_a_path_filters_nothing() -> None:
    """It fits some calls about a path, and others not."""
    assert not kept("deny", Rule("*", {"path": "**/.env", "recursive": "true"}))
    assert not kept("deny", Rule("read_file"))
    assert not kept("deny", Rule("*", {"steps[*].path": "**/.env"}))


def test_ask_rules_follow_the_mode() -> None:
    """Where nobody is asked, they allow or deny."""
    assert kept("ask", rule("*"), mode="approve-all") == ""
    assert kept("ask", rule("*"), mode="deny-all") == "reading writing"
    assert kept("deny", rule("*"), mode="approve-all") == "reading writing"


def test_rule_holds_for_its_agents_and_for_the_names_of_its_tools() -> None:
    """As it does for calls."""
    assert kept("deny", rule("*", agent="desk"), path=("desk",))
    assert not kept("deny", rule("*", agent="desk"), path=("desk", "clerk"))
    assert kept("deny", rule("a_read_file"), prefix="a_") == "reading"
    assert not kept("deny", rule("a_read_file"))
    assert not kept("deny", rule("read_file"), prefix="a_")


@pytest.mark.parametrize("glob, paths", [
    ("**/.env", [".env", "a/.env"]), ("*.env", [".env", "a/.env"]), (".ENV", [".env"]), ("./a/../.env", [".env"]),
    ("secrets", ["secrets/key", "secrets"]), ("secrets/", ["secrets/key", "secrets"]),
    ("secrets/**", ["secrets/key", "secrets"]), ("secrets/*", ["secrets/key"]), ("**", list(SOME_PATHS)),
    ("/srv/.env", []), ("s?crets/k[a-f]y", ["secrets/key"]),
])  # fmt: skip
def test_globs_are_read_widely(glob: str, paths: list[str]) -> None:
    """And a folder takes in what lies in it."""
    assert fitting(glob) == paths


@pytest.mark.parametrize("path", ["cafe\u0301.txt", "CAFÉ.TXT", "ca\u200cfé.txt"])
def test_spellings_that_some_disk_takes_for_one_are_one(path: str) -> None:
    """As of an excluded path."""
    assert RulePaths("deny", rule("*", "café.txt")).why(path, is_folder=False) is not None


def test_reason_names_the_rule(wording: Wording) -> None:
    """With its place."""
    denied = rule("*", source="approval.yaml:3")
    found = rule_filter(ApprovalRules(deny=(denied,)), ("desk",), "ask")
    assert found.keeps("a/.env", changes=True) == wording
    assert found.keeps("a/b", changes=True) is None
    assert len({RulePaths("deny", denied), RulePaths("deny", denied), RulePaths("ask", denied)}) == 2
    assert reached_paths("read_file", {"path": 5}, InMemoryFilesystem()) is None  # of a tool of the program


SPELLINGS = st.text(st.sampled_from("abAB/*\u00e9\u0301\u200c[k\u212a]"), max_size=8)
"""Paths and globs in which spellings are many, among them the sign for kelvin, which is a `k` in lower case."""


@given(SPELLINGS, SPELLINGS)
def test_path_is_held_against_every_glob_that_could_fit_it(pattern: str, path: str) -> None:
    """Most paths are passed over by a look at their characters, and no path that fits."""
    rule_paths = RulePaths("deny", rule("*", pattern))
    short = shortest(pattern)
    spelled = (short, short.removesuffix("/**") or pattern)
    fits = any(
        glob(each, "wide", above=True)(path) or glob(folded(each), "wide", above=True)(folded(path)) for each in spelled
    )
    assert (rule_paths.why(path, is_folder=False) is not None) is fits
