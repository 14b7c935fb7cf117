"""What ignore files hide: what the `git` command hides, over a corpus of trees, and what is Handrail's own."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from handrail.filesystem import HostFilesystem, InMemoryFilesystem
from handrail.filesystem.walks import WalkRequest

SEEN = WalkRequest(ignored=False)
_WITHOUT_GIT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
NO_SETTINGS = {**_WITHOUT_GIT, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}

CORPUS: Mapping[str, Mapping[str, str]] = {
    "everything": {".gitignore": "*\n!keep\n", "x": "", "keep": "", "a/keep": ""},
    "everything but folders": {".gitignore": "*\n!*/\n!*.py\n", "x": "", "a/b/x.py": "", "a/x": ""},
    "brackets": {".gitignore": "[ab]x\n[!c]y\n[^c]z\n", "ax": "", "cx": "", "cy": "", "dy": "", "cz": "", "dz": ""},
    "ranges": {".gitignore": "[a-c]\n[a-]1\n", "b": "", "d": "", "-1": "", "a1": "", "b1": ""},
    "slash in brackets": {".gitignore": "x[a/]y\n", "xay": "", "b/xay": "", "x/y": ""},
    "a bracket that is not closed": {".gitignore": "[ab\n!x\n", "[ab": "", "a": "", "x": ""},
    "odd lines": {".gitignore": "a\\\nb\\/c\nd//e\n[[:x\nf/\n", **dict.fromkeys(
        ("a", "b/c", "d/e", "x", "f", "z"), "")},
    "an escaped exclamation mark": {".gitignore": "\\!x\n", "!x": "", "x": ""},
    "an escaped number sign": {".gitignore": "\\#x\n#y\n", "#x": "", "#y": "", "y": ""},
    "spaces at the end": {".gitignore": "a   \nb\\ \nc \\ \n", "a": "", "b ": "", "b": "", "c  ": "", "c": ""},
    "lines of another system": {".gitignore": "a\r\nb \r\n", "a": "", "b": "", "c": ""},
    "a byte order mark": {".gitignore": "\ufeffa\n", "a": "", "b": ""},
    "letters that are not ASCII": {".gitignore": "é\n[é]x\n", "é": "", "e": "", "éx": ""},
    "a dot file": {".gitignore": ".*\n!.gitignore\n", ".env": "", "a/.env": "", "env": ""},
    "nested": {".gitignore": "*.log\n", "a/.gitignore": "!keep.log\nx\n", "a/keep.log": "", "keep.log": "", "a/x": ""},
    "nested, shown and hidden": {".gitignore": "x", "a/.gitignore": "!x", "b/.gitignore": "x", "a/x": "", "b/x": ""},
    "of the repository": {".git/info/exclude": "x\ny\n", ".gitignore": "!y\n", "x": "", "y": "", "a/x": ""},
    "the file itself": {".gitignore": ".gitignore\nx\n", "x": "", "y": ""},
}  # fmt: skip


def git(root: Path, *arguments: str) -> str:
    """What git says."""
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, check=True, env=NO_SETTINGS)
    return done.stdout.decode()


def shown_by_git(root: Path) -> set[str]:
    """The files that git does not ignore."""
    return {path for path in git(root, "ls-files", "-z", "--others", "--exclude-standard").split("\0") if path}


def plant(root: Path, files: Mapping[str, str]) -> None:
    """A repository with these files."""
    git(root.parent, "init", "--quiet", str(root))
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode())


def files_of(paths: set[str]) -> set[str]:
    """Those that lie in no repository's own folder."""
    return {path for path in paths if not path.startswith(".git/")}


@pytest.mark.parametrize("files", CORPUS.values(), ids=CORPUS)
def test_ignore_files_hide_what_git_hides(files: Mapping[str, str], tmp_path: Path) -> None:
    """In memory and on disk, file by file."""
    root = tmp_path / "root"
    plant(root, files)
    expected = shown_by_git(root)
    in_memory = InMemoryFilesystem(files).scan(".", "**", SEEN)
    assert files_of({stat.path for stat in in_memory.entries if stat.kind == "file"}) == expected
    with HostFilesystem(root, journal=tmp_path / "journal") as fs:
        on_disk = fs.scan(".", "**", SEEN)
    assert files_of({stat.path for stat in on_disk.entries if stat.kind == "file"}) == expected


NAMES = ["a", "b", "ab", "foo", "x.py", "[a]", "a*", "!a", "#a", "é", "foo ", "a b"]
PIECES = ["a", "b", "*", "a*", "*b", "?", "[ab]", "[!a]", "foo", "**", "x.*", "\\*", "[a"]


def line(chance: random.Random) -> str:
    """A line of an ignore file; none in which `**` follows on letters, as git does not keep to its manual there."""
    text = "/".join(chance.choice(PIECES) for _ in range(chance.choice([1, 1, 1, 2, 2, 3])))
    start, end = chance.choice(["", "", "", "/"]), chance.choice(["", "", "", "/", " ", "\\ ", "\r"])
    return chance.choice(["", "", "", "!"]) + start + text + end


@pytest.mark.parametrize("seed", range(12))
def test_random_ignore_files_hide_what_git_hides(seed: int, tmp_path: Path) -> None:
    """Files of patterns in several folders; the seed names the case."""
    chance, root = random.Random(seed), tmp_path / "root"  # noqa: S311 - no secret
    files: dict[str, str] = {}
    for _ in range(40):
        path = [chance.choice(NAMES) for _ in range(chance.randint(1, 4))]
        above = {"/".join(path[:number]) for number in range(1, len(path))}
        if not above & files.keys() and not any(each.startswith("/".join(path) + "/") for each in files):
            files["/".join(path)] = ""
    folders = sorted({path.rpartition("/")[0] for path in files if "/" in path})
    for folder in ["", *chance.sample(folders, min(3, len(folders)))]:
        lines = "\n".join(line(chance) for _ in range(chance.randint(1, 4)))
        files[f"{folder}/.gitignore".removeprefix("/")] = lines
    plant(root, files)
    found = InMemoryFilesystem(files).scan(".", "**", SEEN)
    assert {stat.path for stat in found.entries if stat.kind == "file"} == shown_by_git(root)


def seen(files: Mapping[str, str]) -> set[str]:
    """The files that a look shows."""
    found = InMemoryFilesystem(files).scan(".", "**", SEEN)
    return files_of({stat.path for stat in found.entries if stat.kind == "file"})


def test_brackets_that_are_not_read_match_nothing() -> None:
    """Also where git reads them: what is not hidden is shown, and is restored after a failed program."""
    lines = ("[[:alpha:]]", "[b-a]", "[\\]]", "[[:a]", "[*--b]")
    names = ("a", "b", "]", ":", "-")
    assert seen({".gitignore": "\n".join(lines), **dict.fromkeys(names, "")}) == {".gitignore", *names}


def test_ignore_file_of_its_own_name_says_more_than_git_does() -> None:
    """`.ignore` hides and shows whatever `.gitignore` says, near or far."""
    files = {".ignore": "!a.log\nb\n", ".gitignore": "*.log\n!b\n", "a.log": "", "c.log": "", "b": "", "d/a.log": ""}
    assert seen({**files, "d/.gitignore": "a.log\n"}) == {".ignore", ".gitignore", "a.log", "d/.gitignore", "d/a.log"}


def test_an_ignore_file_that_is_a_link_or_very_large_says_nothing(tmp_path: Path) -> None:
    """As git does not follow such a link, and so that a walk stays short."""
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "rules").write_text("x\n")
    (root / ".gitignore").symlink_to("rules")
    (root / "a/.gitignore").write_text("x\n" + "#" * (1 << 20))
    for path in ("x", "a/x"):
        (root / path).write_text("")
    with HostFilesystem(root, journal=tmp_path / "journal") as fs:
        found = {stat.path for stat in fs.scan(".", "**", SEEN).entries}
    assert {"x", "a/x"} <= found


def test_names_that_are_no_utf8_are_matched_by_their_bytes(tmp_path: Path) -> None:
    """The spelling is for people."""
    root = tmp_path / "root"
    root.mkdir()
    (root / ".gitignore").write_bytes(b"caf\xe9\n")
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9")).write_text("")
    with HostFilesystem(root, journal=tmp_path / "journal") as fs:
        assert [stat.path for stat in fs.scan(".", "**", SEEN).entries] == [".gitignore"]


def test_no_line_makes_a_walk_hang() -> None:
    """Each part is matched in one pass."""
    files = {".gitignore": "*a" * 60 + "b\n" + "/".join(["**", "*a" * 20 + "b"] * 20) + "\n"}
    deep = "/".join(["a" * 60] * 20)
    assert seen({**files, f"{deep}/{'a' * 250}": ""}) == {".gitignore", f"{deep}/{'a' * 250}"}


def test_a_look_into_an_ignored_folder_finds_nothing_and_says_why() -> None:
    """However deep it begins; without ignore files it finds what is there."""
    fs = InMemoryFilesystem({".gitignore": "out/\n", "out/b/c": ""})
    assert fs.scan("out/b", "**", SEEN).start_ignored
    assert [stat.path for stat in fs.scan("out/b", "**").entries] == ["out/b/c"]
