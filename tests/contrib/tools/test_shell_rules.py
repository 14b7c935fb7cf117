"""Rules of the shell: the commands that may run, and the ready rules."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest

from handrail.contrib.tools import GIT_READING, READING, ProgramEnded, ShellRule, ShellToolsSection
from handrail.contrib.tools.shell.rules import (
    ArgumentPath,
    describe_rules,
    format_command,
    match_command,
    parse_shell_rules,
)
from handrail.errors import PromptValidationError, ToolValidationError
from handrail.filesystem import HostFilesystem
from tests.contrib.suites import SuiteRun
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
    rules = parse_shell_rules([("ls",), ShellRule(("make", "test"), exact=True)])
    with raises(ToolValidationError, wording):
        match_command(rules, ("rm", "x" * 1000), place)
    with raises(ToolValidationError, wording):
        match_command((), ("ls",), place)
    assert format_command("short") == "'short'"


def test_one_rule_that_allows_a_command_is_enough(place: ArgumentPath, wording: Wording) -> None:
    """The fault that is told is that of the rule that says most about the command."""
    rules = parse_shell_rules([ShellRule(("git",), options=()), ShellRule(("git", "log"), options=("-p",))])
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


@pytest.mark.parametrize("token", ["-la", "-l5", "-5", "-", "--", "--all", "--all=5", "-name", "-7k", "file", "+x"])
def test_options_that_are_listed_may_follow(token: str, place: ArgumentPath) -> None:
    """Letters may be joined, with digits; long ones may have a value; operands are none."""
    rule = ShellRule(("x",), options=("-l", "-a", "--all", "-name", "-[0-9]*"))
    assert match_command((rule,), ("x", token), place) is rule


@pytest.mark.parametrize("token", ["-x", "-lx", "--al", "--all-of", "-nam", "-names", "-l=", "--l", "-é"])
@pytest.mark.parametrize("before", [(), ("--",), ("-l", "file")])
def test_no_other_options_follow(token: str, before: tuple[str, ...], place: ArgumentPath, wording: Wording) -> None:
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
    """Links that stay inside, ranges, and names of what is not there yet; long tokens are judged in time."""
    rule = ShellRule(("x",))
    for given in (token, "=" * 100_000, f"-{'a' * 100_000}"):
        assert match_command((rule,), ("x", given), place) is rule


def test_paths_are_judged_from_the_folder_that_a_command_starts_in(place: ArgumentPath, wording: Wording) -> None:
    """The same token leads elsewhere from another folder."""
    rule, notes = ShellRule(("x",)), ArgumentPath(place.root, place.root / "notes")
    assert match_command((rule,), ("x", "out"), notes) is rule
    with raises(ToolValidationError, wording):
        match_command((rule,), ("x", "s"), notes)


def test_rules_in_words(wording: Wording) -> None:
    """For the guidance, with exit codes; long lists of options are left out, and the same limits are told once."""
    rules = (
        ShellRule(("ls",)), ShellRule(("ls",), options=()), ShellRule(("ls",), options=("-l", "-a")),
        ShellRule(("ls",), options=tuple(f"-{letter}" for letter in "abcdefg")),
        ShellRule(("ls",), options=(), exact=True),
        ShellRule(("a",), commit_on=(0, 1, 5)),
        *GIT_READING,
    )  # fmt: skip
    assert describe_rules(rules) == wording


ONE: dict[str, Any] = {"prefix": ("ls",)}


@pytest.mark.parametrize("fields", [
    *({"prefix": prefix} for prefix in ((), "ls", ("/bin/ls",), ("l*",), ("ls -l",))), {**ONE, "runs": "ls"},
    {**ONE, "runs": ("/bin/ls",)}, {"prefix": ("ls", "*"), "runs": ("ls",)}, {**ONE, "options": ("l",)},
    *({**ONE, "commit_on": codes} for codes in ((1,), (0, 256))),
])  # fmt: skip
def test_rule_that_cannot_be_meant_is_refused(fields: dict[str, Any], wording: Wording) -> None:
    """Where it is written, and with what would be right; a list of exit codes will do."""
    with raises(PromptValidationError, wording):
        ShellRule(**fields)
    assert ShellRule(("ls",), commit_on=cast("Any", [1, 0])).commit_on == (0, 1)
    with pytest.raises(PromptValidationError):
        parse_shell_rules("git")


_ISOLATED = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two notes, in a folder with a secret, and links to that."""
    root = tmp_path / "root"
    (root / "notes").mkdir(parents=True)
    (root / "notes/a.txt").write_text("milk\nbread\n")
    (root / "b.txt").write_text("milk\n")
    (tmp_path / "secret.txt").write_text("milk SECRET\n")
    (root / "out").symlink_to(tmp_path)
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    return root


@pytest.fixture
def run(root: Path) -> SuiteRun:
    """Calls of the reading preset."""
    return SuiteRun(ShellToolsSection(root, allow=READING))


def git(root: Path, *arguments: str) -> None:
    """Work on a repository as its owner does."""
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    environment = {"PATH": os.environ["PATH"]} | _ISOLATED
    subprocess.run(["git", *names, *arguments], cwd=root, env=environment, check=True, capture_output=True)


@pytest.fixture
def repository(root: Path) -> Path:
    """The folder as a repository with one commit and one change."""
    git(root, "init")
    git(root, "add", "b.txt", "notes")
    git(root, "commit", "-m", "first")
    (root / "b.txt").write_text("oat milk\n")
    return root


@pytest.fixture
def git_run(repository: Path) -> SuiteRun:
    """Calls of the git preset."""
    return SuiteRun(ShellToolsSection(repository, allow=GIT_READING))


@pytest.mark.parametrize("command, shown", [
    ("ls -1 notes", "a.txt\n"), ("cat -n b.txt", "milk"), ("head -n 1 notes/a.txt", "milk\n"),
    ("wc -l notes/a.txt", "2"), ("head -1 notes/a.txt", "milk\n"), ("tail -n 1 notes/a.txt", "bread\n"),
    ("grep -rn bread .", "notes/a.txt:2:bread\n"), ("grep -e bread --include=*.txt -r", "a.txt:bread\n"),
    ("find . -name a.* -type f -mtime -5", "./notes/a.txt\n"), ("git status --short", " M b.txt\n"),
    ("git log --oneline -1", "first"), ("git log -n 1 -p -- b.txt", "+milk"), ("git diff --stat", "b.txt"),
    ("git show HEAD:b.txt", "milk\n"),
])  # fmt: skip
def test_looking_works(command: str, shown: str, repository: Path) -> None:
    """What the presets are for."""
    run = SuiteRun(ShellToolsSection(repository, allow=[*READING, *GIT_READING]))
    assert shown in run.told("shell_run", command=command.split())


ATTACKS = """
cat /etc/passwd | cat out/secret.txt | cat link.txt | cat ../secret.txt | cat -- ../secret.txt |
head notes/../../secret.txt | head --bytes=9 link.txt | tail -f b.txt | tail --follow b.txt | ls -lL . | ls / |
ls --dereference | wc --files0-from=b.txt | grep -R milk . | grep -rR milk . | grep -eR milk |
grep --dereference-recursive milk . | grep --deref milk . | grep -f /etc/passwd b.txt | grep -f b.txt b.txt |
grep -f/etc/passwd b.txt | grep --file=/etc/passwd b.txt | grep --exclude-from=link.txt milk b.txt |
grep milk link.txt | find / -name x | find out/ -name x | find -L . -name x | find -H out | find . -follow |
find . -delete | find . -exec cat {} + | find . -execdir cat {} ';' | find . -ok cat {} ';' |
find . -okdir cat {} ';' | find . -fprint x | find . -fprintf x y | find . -fprint0 x | find . -fls x |
find -files0-from b.txt | find . -newer /etc/passwd | find . -newer link.txt | rg --pre cat milk |
rg --pre=cat milk | rg -z milk | rg --search-zip milk | rg -L milk | rg --follow milk | rg -f link.txt |
rg --hostname-bin=cat milk | git status | sh -c ls | env ls | ./ls | /bin/ls | notes/../ls | LS | ls '>' x
"""
"""Commands, between bars."""


@pytest.mark.requirement("A-36")
@pytest.mark.parametrize("command", [*map(shlex.split, ATTACKS.split("|")), ["ls\n"]], ids=" ".join)
def test_what_an_attacker_would_try_is_refused(command: list[str], run: SuiteRun, root: Path) -> None:
    """Nothing is run, nothing outside is shown, and nothing is written."""
    before = sorted(root.rglob("*"))
    told = run.refused("shell_run", command=command)
    assert "SECRET" not in told
    assert not re.search("has ended|was ended|not installed", told)
    assert sorted(root.rglob("*")) == before


def test_looking_through_a_folder_does_not_follow_links_out_of_it(run: SuiteRun) -> None:
    """The links lie where the programs come by."""
    for command in (["grep", "-r", "milk", "."], ["find", "."], ["ls", "-lR"], ["grep", "-r", "milk"]):
        assert "SECRET" not in run.told("shell_run", command=command)


def test_every_rule_of_the_presets_only_reads() -> None:
    """So that the tree need not be kept before them; and each is confined and has its options listed."""
    for rule in (*READING, *GIT_READING):
        assert rule.reads
        assert rule.confined
        assert rule.options


GIT_ATTACKS = """
git | git commit -m x | git -c 'core.pager=touch x' log | git '-ccore.pager=touch x' log | git --exec-path=. log |
git --git-dir=out/.git log | git -C .. log | git --paginate log | git diff --output=x | git diff --outp=x |
git diff --output x | git log -O x | git diff -Ox | git diff --ext-diff | git diff --ext |
git show --textconv HEAD:b.txt | git diff --no-index b.txt out/secret.txt |
git diff --no-index b.txt ../secret.txt | git diff b.txt link.txt | git log --show-signature |
git log --format=%G? | git log --format %H%GK | git log --pretty=format:%GS | git log --open-files-in-pager |
git status --ignore-submodules=none | git log --submodule | git log -- /etc | git log -- ../
"""


@pytest.mark.parametrize("command", [*map(shlex.split, GIT_ATTACKS.split("|"))], ids=" ".join)
def test_what_an_attacker_tries_with_git_is_refused(command: list[str], git_run: SuiteRun, repository: Path) -> None:
    """Options before and after, in long and shortened forms, and formats that start programs."""
    told = git_run.refused("shell_run", command=command)
    assert "SECRET" not in told
    assert not re.search("has ended|was ended|not installed", told)
    assert not (repository / "x").exists()


def test_git_starts_nothing_that_its_configuration_names_for_looking(git_run: SuiteRun, repository: Path) -> None:
    """Pager, external diff, conversions, monitor, hooks and signatures are off, whatever the repository says."""
    program = repository / "evil"
    program.write_text(f"#!/bin/sh\ntouch {repository}/started\ncat\n")
    program.chmod(0o755)
    for key in ("core.pager", "core.fsmonitor", "diff.external", "diff.x.textconv", "diff.x.command", "gpg.program"):
        git(repository, "config", key, os.fspath(program))
    git(repository, "config", "log.showSignature", "true")
    (repository / ".gitattributes").write_text("*.txt diff=x\n")
    for command in (["status"], ["log", "-p"], ["diff"], ["show"]):
        git_run.told("shell_run", command=["git", *command])
    assert not (repository / "started").exists()


def test_git_does_not_look_for_a_repository_above_the_root(repository: Path, wording: Wording) -> None:
    """What lies above is outside."""
    run = SuiteRun(ShellToolsSection(repository / "notes", allow=GIT_READING))
    assert run.refused("shell_run", command=["git", "log"]) == wording


def test_word_that_may_name_a_file_of_arguments_is_refused(run: SuiteRun, root: Path, wording: Wording) -> None:
    """By every rule, except where the developer has written the word; a path and a pattern can be written otherwise."""
    (root / "@types").mkdir()
    (root / "@types" / "a.ts").write_text("@x")
    for command in ("cat ./@types/a.ts", "grep -r [@]x .", "grep -e [@]x ./@types/a.ts"):
        assert run.told("shell_run", command=command.split()).rstrip().endswith("@x")
    named, free = ShellRule(("nopm", "i", "@a/b")), ShellRule(("pnpm",), confined=False)
    rules = (*READING, *GIT_READING, ShellRule(("gcc", "*")), named, free)
    run = SuiteRun(ShellToolsSection(root, allow=rules))
    reading = "cat @a", "grep -e @a .", "git log @a"
    for command in (*reading, "gcc @a", "nopm i @a/b @a", "pnpm x @a"):
        assert run.refused("shell_run", command=command.split()) == wording
    assert "not installed" in run.refused("shell_run", command=["nopm", "i", "@a/b"])


PROGRAMS = Path(sys.executable).parent
RUFF = ShellRule(("ruff", "check"), options=("--fix", "--output-format", "--select"), commit_on=(0, 1))
PYTEST = ShellRule(("pytest",), options=("-q",), commit_on=(0, 1, 5))
CODE = "import os\n\n\ndef broken(x: int) -> int:\n    return undefined_name\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a file in which one finding can be fixed, and one cannot."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "code.py").write_text(CODE)
    return root


@pytest.fixture
def desk(project: Path) -> Generator[HostFilesystem]:
    """The folder, opened."""
    with HostFilesystem(project, journal=project.with_name("journal")) as desk:
        yield desk


def running(desk: HostFilesystem, *places: Path) -> SuiteRun:
    """Calls of a fixer and a checker, with the programs of some folders."""
    path = os.pathsep.join(str(place) for place in (*places, PROGRAMS, "/usr/bin", "/bin"))
    return SuiteRun(ShellToolsSection(desk, allow=[RUFF, PYTEST], environment={"PATH": path}))


def test_ruff_keeps_its_fixes_when_a_finding_is_left(project: Path, desk: HostFilesystem, wording: Wording) -> None:
    """The call succeeds, and says so; used wrongly it fails, and options that are not allowed are refused before."""
    run = running(desk)
    for option in ("--config", "--cache-dir", "--output-file", "--watch"):
        assert run.refused("shell_run", command=["ruff", "check", option]) == wording
    run.refused("shell_run", command=["ruff", "check", "--select", "NOSUCH"])
    assert not (project / ".ruff_cache").exists()
    assert (project / "code.py").read_text() == CODE
    message = run.call("shell_run", command=["ruff", "check", "--fix", "--output-format", "concise", "code.py"])
    assert message.success
    assert "import os" not in (project / "code.py").read_text()
    assert message.content == wording
    assert isinstance(message.result.value, ProgramEnded)
    assert (message.result.value.code, message.result.value.changes) == (1, "kept")


@pytest.mark.parametrize("command, code, stays", [
    (["ruff", "check", "--fix"], 1, True), (["ruff", "check"], 3, False), (["pytest", "-q"], 5, True),
    (["pytest"], 2, False),
])  # fmt: skip
def test_exit_codes_decide(command: list[str], code: int, project: Path, desk: HostFilesystem, *, stays: bool) -> None:
    """Of a program that changes a file, and ends so."""
    planted = project.with_name("programs")
    planted.mkdir()
    (planted / command[0]).write_text(f"#!/bin/sh\necho fixed > code.py; exit {code}\n")
    (planted / command[0]).chmod(0o755)
    message = running(desk, planted).call("shell_run", command=command)
    assert message.success == stays
    assert (project / "code.py").read_text() == ("fixed\n" if stays else CODE)
