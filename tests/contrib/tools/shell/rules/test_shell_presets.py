"""The rules to start from: what they are for works, and what an attacker would try is refused before it runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from handrail.contrib.tools import CHECKING, FIXING, GIT_READING, READING, ShellRule, ShellToolsSection
from tests.contrib.suites import SuiteRun
from tests.wording import Wording

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


@pytest.mark.parametrize(
    "command, shown",
    [
        (["ls", "-1", "notes"], "a.txt\n"),
        (["cat", "-n", "b.txt"], "milk"),
        (["head", "-n", "1", "notes/a.txt"], "milk\n"),
        (["head", "-1", "notes/a.txt"], "milk\n"),
        (["tail", "-n", "1", "notes/a.txt"], "bread\n"),
        (["wc", "-l", "notes/a.txt"], "2"),
        (["grep", "-rn", "bread", "."], "notes/a.txt:2:bread\n"),
        (["grep", "-e", "bread", "--include=*.txt", "-r"], "a.txt:bread\n"),
        (["find", ".", "-name", "a.*", "-type", "f", "-mtime", "-5"], "./notes/a.txt\n"),
    ],
)
def test_looking_works(command: list[str], shown: str, run: SuiteRun) -> None:
    """What the preset is for."""
    assert shown in run.told("shell_run", command=command)


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


@pytest.mark.parametrize(
    "command, shown",
    [
        (["git", "status", "--short"], " M b.txt\n"),
        (["git", "log", "--oneline", "-1"], "first"),
        (["git", "log", "-n", "1", "-p", "--", "b.txt"], "+milk"),
        (["git", "diff", "--stat"], "b.txt"),
        (["git", "show", "HEAD:b.txt"], "milk\n"),
    ],
)
def test_looking_at_a_repository_works(command: list[str], shown: str, git_run: SuiteRun) -> None:
    """What the git preset is for."""
    assert shown in git_run.told("shell_run", command=command)


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
def test_what_an_attacker_would_try_with_git_is_refused(
    command: list[str], git_run: SuiteRun, repository: Path
) -> None:
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
    rules = (*READING, *GIT_READING, *FIXING, *CHECKING, ShellRule(("gcc", "*")), named, free)
    run = SuiteRun(ShellToolsSection(root, allow=rules))
    reading = "cat @a", "grep -e @a .", "git log @a"
    for command in (*reading, "ruff check @a", "mypy @a", "pytest -q @a", "gcc @a", "nopm i @a/b @a", "pnpm x @a"):
        assert run.refused("shell_run", command=command.split()) == wording
    assert "not installed" in run.refused("shell_run", command=["nopm", "i", "@a/b"])
