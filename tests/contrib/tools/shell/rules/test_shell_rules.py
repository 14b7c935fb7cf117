"""Rules of the shell suite: what they take, what they let through, and what they say to what they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handrail.contrib.tools import GIT_READING, ShellRule
from handrail.contrib.tools.shell.rules import ArgumentPath, describe_rules, format_command, match_command, parse_rules
from handrail.errors import PromptValidationError, ToolValidationError
from tests.kit import raises
from tests.wording import Wording


@pytest.fixture
def place(tmp_path: Path) -> ArgumentPath:
    """A root with a folder, a link that stays inside, and links that lead out."""
    root = (tmp_path / "root").resolve()
    (root / "notes").mkdir(parents=True)
    (tmp_path / "secret").write_text("no")
    (root / "out").symlink_to(tmp_path)
    (root / "-k").symlink_to(tmp_path)
    (root / "notes" / "in").symlink_to("../notes")
    (root / "notes" / "s").symlink_to(tmp_path / "secret")
    return ArgumentPath(root, root)


def refusal(rule: ShellRule, *command: str, place: ArgumentPath) -> str:
    """What is said to a command that must be refused."""
    with pytest.raises(ToolValidationError) as caught:
        match_command((rule,), command, place)
    return str(caught.value)


def test_a_command_must_begin_with_the_tokens_of_a_rule(place: ArgumentPath, wording: Wording) -> None:
    """Each token of the prefix is a glob for one token; the program is none."""
    rule = ShellRule(("make", "test-*"))
    assert match_command((rule,), ("make", "test-unit", "-j"), place) is rule
    for command in (("make",), ("make", "all"), ("make", "x", "test-unit"), ("maker", "test-unit"), ("MAKE", "test-a")):
        assert refusal(rule, *command, place=place) == wording


def test_what_no_rule_allows_is_refused_with_what_is_allowed(place: ArgumentPath, wording: Wording) -> None:
    """The model is told where to go on; a long command is not repeated at length."""
    rules = parse_rules([("ls",), ShellRule(("make", "test"), exact=True)])
    with raises(ToolValidationError, wording):
        match_command(rules, ("rm", "x" * 1000), place)
    with raises(ToolValidationError, wording):
        match_command((), ("ls",), place)
    assert format_command("short") == "'short'"


def test_one_rule_that_allows_a_command_is_enough(place: ArgumentPath, wording: Wording) -> None:
    """The fault that is told is that of the rule that says most about the command."""
    rules = parse_rules([ShellRule(("git",), options=()), ShellRule(("git", "log"), options=("-p",))])
    assert match_command(rules, ("git", "log", "-p"), place) is rules[1]
    assert match_command(rules, ("git", "status"), place) is rules[0]
    with raises(ToolValidationError, wording):
        match_command(rules, ("git", "log", "-x"), place)
    with raises(ToolValidationError, wording):
        match_command(rules, ("git", "tag", "-d"), place)


def test_exact_rule_lets_nothing_follow(place: ArgumentPath, wording: Wording) -> None:
    """Not even an operand."""
    rule = ShellRule(("make", "test"), exact=True)
    assert match_command((rule,), ("make", "test"), place) is rule
    assert refusal(rule, "make", "test", "SHELL=x", place=place) == wording


@pytest.mark.parametrize(
    "pattern, refused, taken",
    [
        ("-exec", ["-exec"], ["-e", "-execdir", "exec"]),
        ("-exec*", ["-exec", "-execdir"], ["-ex"]),
        ("--output", ["--output", "--output=x", "--outp", "--o=x"], ["--output-indicator", "--", "-output", "--in"]),
        ("--pre*", ["--pre=x", "--pre-glob"], ["--print"]),
        ("-o", ["-o", "-ofile", "-xo"], ["-", "--o", "o", "-x"]),
        ("*%G*", ["--format=%G?", "%GK"], ["%H"]),
    ],
)
def test_forbidden_tokens_are_known_in_every_way_they_can_be_written(
    pattern: str, refused: list[str], taken: list[str], place: ArgumentPath, wording: Wording
) -> None:
    """Joined letters, values and shortened long options included."""
    rule = ShellRule(("x",), forbid=(pattern,))
    for token in refused:
        assert refusal(rule, "x", "a", token, place=place) == wording
    for token in taken:
        assert match_command((rule,), ("x", "a", token), place) is rule


@pytest.mark.parametrize("token", ["-la", "-l5", "-5", "-", "--", "--all", "--all=5", "-name", "-7k", "file", "+x"])
def test_options_that_are_listed_may_follow(token: str, place: ArgumentPath) -> None:
    """Letters may be joined, with digits; long ones may have a value; operands are none."""
    rule = ShellRule(("x",), options=("-l", "-a", "--all", "-name", "-[0-9]*"))
    assert match_command((rule,), ("x", token), place) is rule


@pytest.mark.parametrize("token", ["-x", "-lx", "--al", "--all-of", "-nam", "-names", "-l=", "--l", "-é"])
@pytest.mark.parametrize("before", [(), ("--",), ("-l", "file")])
def test_options_that_are_not_listed_may_not_follow(
    token: str, before: tuple[str, ...], place: ArgumentPath, wording: Wording
) -> None:
    """Wherever they stand: not every program takes what comes after `--` for operands."""
    rule = ShellRule(("x",), options=("-l", "-a", "--all", "-name"))
    assert refusal(rule, "x", *before, token, place=place) == wording


LEADING_OUT = """
/etc/passwd .. ../x a/../../x notes/.. --file=/etc/x --file=../x -f/etc/x -f../x -f.. a@/etc/x a:/etc/x a,/etc/x
out out/secret notes/s notes/in/s -fout -xfout --file=out --file=a,out x@out x:out -k
"""


@pytest.mark.parametrize("token", LEADING_OUT.split())
def test_confined_rule_refuses_what_leads_out(token: str, place: ArgumentPath, wording: Wording) -> None:
    """In a token of its own, joined to an option, as its value, behind a sign, and over a link."""
    told = refusal(ShellRule(("x",)), "x", token, place=place)
    assert told.startswith("$.command[1]: ")
    assert told == wording
    unconfined = ShellRule(("x",), confined=False)
    assert match_command((unconfined,), ("x", token), place) is unconfined


STAYING = "notes notes/in HEAD~1..HEAD ..HEAD a..b ... --x=notes/in a=b/c new/file é"


@pytest.mark.parametrize("token", [*STAYING.split(), "x" * 9000])
def test_confined_rule_takes_what_stays_inside(token: str, place: ArgumentPath) -> None:
    """Links that stay inside, ranges, and names of what is not there yet."""
    rule = ShellRule(("x",))
    assert match_command((rule,), ("x", token), place) is rule


def test_paths_are_judged_from_the_folder_that_a_command_starts_in(place: ArgumentPath, wording: Wording) -> None:
    """The same token leads elsewhere from another folder."""
    rule, notes = ShellRule(("x",)), ArgumentPath(place.root, place.root / "notes")
    assert match_command((rule,), ("x", "out"), notes) is rule
    with raises(ToolValidationError, wording):
        match_command((rule,), ("x", "s"), notes)


def test_rules_in_words(wording: Wording) -> None:
    """For the guidance; long lists of options are left out of it."""
    rules = (
        ShellRule(("ls",)),
        ShellRule(("ls",), options=()),
        ShellRule(("ls",), options=("-l", "-a")),
        ShellRule(("ls",), options=tuple(f"-{letter}" for letter in "abcdefg"), forbid=("*%G*",)),
        ShellRule(("ls",), options=(), forbid=("-x",), exact=True),
    )
    assert describe_rules(rules) == wording


def test_rules_with_the_same_limits_are_described_together(wording: Wording) -> None:
    """The options of `git log`, `diff` and `show` are listed once; a program without limits has a line of its own."""
    lines = describe_rules((ShellRule(("make",)), *GIT_READING, ShellRule(("sh",))))
    assert [line.partition(",")[0] for line in lines] == ["`make`", "`git status`", "`git log`", "`sh`"]
    assert lines == wording


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"prefix": ()}, id="empty prefix"),
        pytest.param({"prefix": "ls"}, id="text for a prefix"),
        pytest.param({"prefix": ("ls", "")}, id="empty token"),
        pytest.param({"prefix": ("ls",), "exact": "yes"}, id="text for a switch"),
        pytest.param({"prefix": ("/bin/ls",)}, id="absolute path"),
        pytest.param({"prefix": ("l*",)}, id="glob for a program"),
        pytest.param({"prefix": ("ls -l",)}, id="program with an option"),
        pytest.param({"prefix": ("ls",), "runs": ("/bin/ls",)}, id="runs a path"),
        pytest.param({"prefix": ("ls", "*"), "runs": ("ls",)}, id="glob beside runs"),
        pytest.param({"prefix": ("ls",), "options": "-l"}, id="text for options"),
        pytest.param({"prefix": ("ls",), "options": ("l",)}, id="option without a hyphen"),
        pytest.param({"prefix": ("ls",), "forbid": None}, id="nothing for forbid"),
    ],
)
def test_rule_that_cannot_be_meant_is_refused(fields: dict[str, Any], wording: Wording) -> None:
    """Where it is written, and with what would be right."""
    with raises(PromptValidationError, wording):
        ShellRule(**fields)


def test_every_fault_of_the_declared_rules_is_told(wording: Wording) -> None:
    """A plain string is a common mistake: it looks like a rule, and would be a rule of single letters."""
    declared: Any = [("ls",), "git status", ("a/b",), 7]
    with raises(PromptValidationError, wording):
        parse_rules(declared)
    nothing: Any
    for nothing in ("ls", b"ls", None, 5):
        with raises(PromptValidationError, wording):
            parse_rules(nothing)


def test_long_tokens_full_of_separators_are_judged_in_time(place: ArgumentPath) -> None:
    """What a model can send takes no time that grows with the square of it."""
    rule = ShellRule(("x",))
    for token in ("=" * 100_000, f"-{'a' * 100_000}"):
        assert match_command((rule,), ("x", token), place) is rule
