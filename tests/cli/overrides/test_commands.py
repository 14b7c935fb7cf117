"""`handrail overrides seed`, `check`, `diff` and `apply`."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from handrail.cli import main
from handrail.prompt import Prompt
from handrail.prompt.overrides import OverrideFiles, PromptOverrides, TextKey, dump_overrides, text_hash
from tests.cli.desk import Ran
from tests.prompt.overrides.desk import GUIDE, LOOKUP, desk, overrides, stale
from tests.wording import Wording

DESK = "counter:DESK"
PROGRAM = """
print("imported")
from handrail.prompt import Prompt
from tests.prompt.overrides.desk import GUIDE, HeldOverrides, desk, overrides
DESK = desk()
PROMPT = Prompt(DESK)
TUNED = Prompt(DESK, overrides=HeldOverrides(overrides((GUIDE, "Be kind."))))
NUMBER = 1
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[OverrideFiles]:
    """The store of a folder with a program, in which the commands are typed."""
    (tmp_path / "counter.py").write_text(PROGRAM)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(3)")
    (tmp_path / "lacking.py").write_text("import nothing_of_that_name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield OverrideFiles(tmp_path / "overrides")
    for name in ("counter", "broken", "lacking"):
        sys.modules.pop(name, None)


@pytest.fixture
def typed(files: OverrideFiles, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Runs commands there."""
    return Typed(capsys)


class Typed:
    """Runs `handrail overrides`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Ran:
        """Run it."""
        self._capsys.readouterr()
        code = main(("overrides", *words))
        out, err = self._capsys.readouterr()
        return Ran(code, out, err)


def stored(files: OverrideFiles, tag: str = "stable") -> PromptOverrides:
    """The overrides of the desk."""
    found = files.read("shop/front", "desk", tag)
    assert found is not None
    return found


def test_what_is_seeded_is_current(typed: Typed, files: OverrideFiles, wording: Wording) -> None:
    """All texts that accept overrides are written, and checked without a finding; what a module prints is aside."""
    seeded, checked, diffed = typed("seed", DESK), typed("check", DESK), typed("diff", "counter:PROMPT")
    assert (seeded.code, checked.code, diffed.code, checked.err) == (0, 0, 0, "")
    assert "imported" in seeded.err
    assert f"{seeded.out}{checked.out}{diffed.out}" == wording
    assert TextKey("section", "law", "body") not in {each.key for each in stored(files).overrides}


def test_seeding_again_keeps_what_is_there(typed: Typed, files: OverrideFiles) -> None:
    """And adds what is missing."""
    files.write(overrides((GUIDE, "Be kind.")))
    first, second = (json.loads(typed("seed", DESK, "--format", "json").out) for _ in range(2))
    assert (first["kept"], second["added"]) == (1, 0)
    assert next(each.text for each in stored(files).overrides if each.key == GUIDE) == "Be kind."


def test_a_check_names_what_is_not_applied(typed: Typed, files: OverrideFiles, wording: Wording) -> None:
    """It fails then; as JSON too."""
    late = stale(overrides((LOOKUP, "Finds."))).overrides
    files.write(
        replace(
            overrides((GUIDE, "Be kind."), (TextKey("tool", "gone", "description"), "A")),
            overrides=(*overrides((GUIDE, "Be kind."), (TextKey("tool", "gone", "description"), "A")).overrides, *late),
        )
    )
    shown, read = typed("check", DESK), typed("check", DESK, "--format", "json")
    assert (shown.code, read.code, shown.out + shown.err.replace("imported\n", "")) == (1, 1, wording)
    found = json.loads(read.out)
    assert (found["ok"], [each["state"] for each in found["texts"]]) == (False, ["applied", "unknown", "stale"])


def test_seed_and_diff_fail_for_a_file_that_cannot_be_read(typed: Typed, files: OverrideFiles) -> None:
    """Nothing is written, and nothing shown; so does a diff of a file that does not exist."""
    assert typed("diff", DESK).code == 1
    files.write(overrides((GUIDE, "Be kind.")))
    place = files.path("shop/front", "desk", "stable")
    place.write_text("{")
    for command in ("seed", "diff"):
        ran = typed(command, DESK)
        assert (ran.code, ran.out, "stable.json" in ran.err) == (1, "", True)
    assert place.read_text() == "{"


def test_a_check_prints_all_faults(typed: Typed, files: OverrideFiles) -> None:
    """Of the file, and of what does not fit the prompt; a file that does not exist is one."""
    assert typed("check", DESK).code == 1
    files.write(overrides((GUIDE, "${nam}"), (TextKey("section", "law", "body"), "A")))
    ran = typed("check", DESK)
    assert (ran.code, ran.out, ran.err.count("stable.json")) == (1, "", 2)


def test_a_difference_has_80_columns(typed: Typed, files: OverrideFiles, wording: Wording) -> None:
    """Long lines are wrapped; a program gets both texts whole."""
    found = overrides((GUIDE, "You are ${name}.\n" + "Be kind to everybody. " * 8), (LOOKUP, "Look an order up."))
    files.write(found)
    ran = typed("diff", DESK)
    assert max(map(len, ran.out.splitlines())) <= 80
    assert ran.out == wording
    (changed,) = json.loads(typed("diff", DESK, "--format", "json").out)["texts"]
    assert (changed["code"], changed["state"]) == ("You are ${name}.\nYou work at the desk.", "applied")


def test_a_proposed_file_is_installed_under_a_tag(typed: Typed, files: OverrideFiles, tmp_path: Path) -> None:
    """If all of it is applied; the tag is that of the command line."""
    proposed = tmp_path / "proposed.json"
    proposed.write_text(dump_overrides(overrides((GUIDE, "Be kind."), tag="trial")))
    assert typed("apply", DESK, str(proposed), "--tag", "next").code == 0
    assert stored(files, "next").overrides[0].text == "Be kind."
    assert files.read("shop/front", "desk", "trial") is None


def test_a_stale_file_is_installed_only_when_it_was_reviewed(
    typed: Typed, files: OverrideFiles, tmp_path: Path, wording: Wording
) -> None:
    """Its overrides get the hashes of the texts of the code then."""
    proposed = tmp_path / "proposed.json"
    proposed.write_text(dump_overrides(stale(overrides((GUIDE, "Be kind.")))))
    ran = typed("apply", DESK, str(proposed))
    assert (ran.code, ran.out + ran.err.replace("imported\n", "")) == (1, wording)
    assert files.read("shop/front", "desk", "stable") is None
    assert json.loads(typed("apply", DESK, str(proposed), "--accept-stale", "--format", "json").out)["installed"]
    assert stored(files).overrides == overrides((GUIDE, "Be kind.")).overrides


def test_a_text_that_was_never_edited_follows_the_code(
    typed: Typed, files: OverrideFiles, tmp_path: Path, wording: Wording
) -> None:
    """It is not stale, and no command brings the former text of the code back."""
    assert typed("seed", DESK).code == 0
    seeded = stored(files).overrides
    former = replace(overrides((LOOKUP, "Formerly.")).overrides[0], sha256=text_hash("Formerly."))
    late = replace(overrides((GUIDE, "Be kind.")).overrides[0], sha256="1" * 64)
    ours = {LOOKUP: former, GUIDE: late}
    files.write(replace(stored(files), overrides=tuple(ours.get(each.key, each) for each in seeded)))
    proposed = tmp_path / "proposed.json"
    proposed.write_text(files.path("shop/front", "desk", "stable").read_text())
    states = {each["name"]: each["state"] for each in json.loads(typed("check", DESK, "--format", "json").out)["texts"]}
    assert (states["lookup"], states["guide"]) == ("applied", "stale")
    assert [each["name"] for each in json.loads(typed("diff", DESK, "--format", "json").out)["texts"]] == ["guide"]
    assert Prompt(desk(), overrides=files).render().text == Prompt(desk()).render().text
    accepted, seeded_again = typed("apply", DESK, str(proposed), "--accept-stale"), typed("seed", DESK)
    assert (accepted.out + accepted.err.replace("imported\n", ""), seeded_again.out) == (wording, wording)
    assert {each.key: each for each in stored(files).overrides} == {
        each.key: overrides((GUIDE, "Be kind.")).overrides[0] if each.key == GUIDE else each for each in seeded
    }
    files.write(replace(stored(files), overrides=(former,)))
    assert json.loads(typed("seed", DESK, "--format", "json").out)["renewed"] == 1
    assert former.text not in {each.text for each in stored(files).overrides}


def test_seeding_leaves_a_file_that_has_all_texts_as_it_is(typed: Typed, files: OverrideFiles) -> None:
    """In its form; one that gets more texts has the permissions that it had."""
    files.write(overrides((GUIDE, "Be kind.")))
    place = files.path("shop/front", "desk", "stable")
    place.chmod(0o640)
    assert typed("seed", DESK).code == 0
    assert place.stat().st_mode & 0o777 == 0o640
    place.write_text(json.dumps(json.loads(place.read_text())))
    before = place.read_text()
    assert (typed("seed", DESK).code, place.read_text()) == (0, before)


def test_a_file_of_another_prompt_is_not_installed(typed: Typed, files: OverrideFiles, tmp_path: Path) -> None:
    """Nor one that cannot be read."""
    proposed = tmp_path / "proposed.json"
    proposed.write_text(dump_overrides(PromptOverrides(ns="other", key="desk", tag="stable")))
    assert typed("apply", DESK, str(proposed)).code == 1
    proposed.write_text("{")
    assert typed("apply", DESK, str(proposed)).code == 1
    assert [typed("apply", DESK, name).code for name in ("missing.json", ".")] == [2, 2]
    assert not files.folder.exists()


@pytest.mark.parametrize(
    "name, code",
    [
        ("counter", 2),
        ("counter:", 2),
        ("missing:DESK", 2),
        ("counter:DESC", 2),
        ("counter:OTHER_THING", 2),
        ("counter:NUMBER", 1),
        ("counter:TUNED", 1),
        ("broken:DESK", 1),
        ("lacking:DESK", 1),
        ("leaving:DESK", 1),
    ],
)
def test_what_is_not_a_prompt_is_refused(typed: Typed, name: str, code: int, wording: Wording) -> None:
    """With what would be right."""
    ran = typed("check", name)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.replace("imported\n", "") == wording
