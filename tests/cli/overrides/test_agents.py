"""`handrail overrides` on an agent file, and what `handrail check` says of the overrides of an agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from handrail.agents.run.agent_texts import INSTRUCTIONS
from handrail.cli import main
from handrail.prompt.overrides import OverrideFiles, TextKey
from tests.cli.agent_folders import write
from tests.cli.desk import Ran
from tests.wording import Wording

NOTE = TextKey("tool", "note", "description")

BROKEN = """
def broken(ctx):
    raise OSError("no port")


TOOLSETS = [broken]
"""


@pytest.fixture
def typed(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command in a folder with an agent, whose project has overrides."""
    write(folder, pyproject__toml="[tool.handrail.overrides]\nfolder = 'texts'\n")

    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = main(words)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


def change(folder: Path, key: TextKey, text: str, *, is_stale: bool = False) -> None:
    """Change the text of an override that was seeded, and its hash if it is to be stale."""
    files = OverrideFiles(folder / "texts")
    found = files.read("agents", "desk", "stable")
    assert found is not None
    changed = (replace(each, text=text, sha256="1" * 64 if is_stale else each.sha256) for each in found.overrides)
    changes = zip(found.overrides, changed, strict=True)
    files.write(replace(found, overrides=tuple(new if old.key == key else old for old, new in changes)))


def test_the_texts_of_an_agent_are_seeded_compared_and_checked(
    typed: Callable[..., Ran], folder: Path, wording: Wording
) -> None:
    """In the folder and under the tag that its project names; other texts make `check` fail, of both commands."""
    seeded, checked = typed("overrides", "seed", "desk.agent"), typed("check", "desk.agent")
    assert (seeded.code, seeded.out, checked.code) == (0, wording, 0)
    assert "override" not in checked.err
    change(folder, INSTRUCTIONS, "You keep short notes.")
    change(folder, NOTE, "Notes.", is_stale=True)
    diffed, stale = typed("overrides", "diff", "desk.agent"), typed("overrides", "check", "desk.agent")
    assert (diffed.code, diffed.out, stale.code) == (0, wording, 1)
    checked = typed("check", "desk.agent")
    assert (checked.code, checked.err) == (0, wording)
    tools = json.loads(typed("check", "desk.agent", "--format", "json").out)["tools"]
    assert next(each["description"] for each in tools if each["name"] == "note") == "Notes something."


def test_a_proposed_file_is_installed_for_an_agent(typed: Callable[..., Ran], folder: Path) -> None:
    """Where the command line says; overrides that runs could not read do not matter."""
    place = folder / "texts" / "agents" / "desk" / "stable.json"
    assert typed("overrides", "seed", "desk.agent").code == 0
    proposed = folder / "proposed.json"
    proposed.write_text(place.read_text())
    place.write_text("{")
    words = ("apply", "desk.agent", str(proposed), "--folder", "elsewhere", "--tag", "next")
    assert typed("overrides", *words).code == 0
    found = OverrideFiles(folder / "elsewhere").read("agents", "desk", "next")
    assert found is not None
    assert NOTE in {each.key for each in found.overrides}
    assert typed("check", "desk.agent").code == 1


def test_overrides_that_no_run_reads_are_named(typed: Callable[..., Ran], folder: Path, wording: Wording) -> None:
    """By the commands over overrides if runs read none, and by `check` if they read none where they are said to be."""
    write(folder, pyproject__toml="")
    ran = [typed("overrides", *words) for words in (("seed", "desk.agent"), ("check", "desk.agent"))]
    assert [each.code for each in ran] == [0, 0]
    assert [each.err for each in ran] == [wording, ran[0].err]
    assert "override" not in typed("check", "desk.agent").err
    write(folder, pyproject__toml="[tool.handrail.overrides]\nfolder = 'text'\n")
    no_folder = typed("check", "desk.agent")
    text = (folder / "desk.agent").read_text()
    (folder / "desk.agent").write_text(text.replace("name: desk\n", "name: desk\noverrides: nope\n"))
    no_file = typed("check", "desk.agent")
    assert [each.code for each in (no_folder, no_file)] == [0, 0]
    assert (no_folder.err + no_file.err).replace(str(folder), "FOLDER") == wording


def test_an_agent_that_cannot_be_loaded_has_no_texts(typed: Callable[..., Ran], folder: Path) -> None:
    """The command fails with what is wrong; a file that does not exist is an invalid command line."""
    write(folder, desk__agent="---\nname: desk\ntools: [gone]\n---\nWork.\n")
    assert typed("overrides", "seed", "desk.agent").code == 1
    assert typed("overrides", "seed", "dask.agent").code == 2
    settings = "[tool.handrail]\npython = ['broken.py']\n"
    agent = "---\nname: desk\ntoolsets: [broken]\n---\nWork.\n"
    write(folder, desk__agent=agent, pyproject__toml=settings, broken__py=BROKEN)
    ran = typed("overrides", "seed", "desk.agent")
    assert (ran.code, "no port" in ran.err) == (1, True)
