"""A developer's mistakes with agents and the command line are told with what was given and what would be right."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import handrail
from handrail.agents import load_agent
from handrail.errors import InvalidArgumentError
from handrail.testing import Reply, ScriptedModel
from tests.agents.mistakes import MISTAKES, SLIPS, Mistake, Slip, typed, written
from tests.wording import Wording

_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")


def comparable(text: str, folder: Path) -> str:
    """A text without what time and place make of it."""
    return re.sub(r"\d+\.\d s\b", "N s", _PORT.sub("PORT", text.replace(str(folder), "FOLDER")))


@pytest.fixture(autouse=True)
def _nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes from the environment or from standard input."""
    for name in ("HANDRAIL_MODEL", "HANDRAIL_STORE", "HANDRAIL_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.door}: {mistake.what}")
def test_a_mistake_is_an_exception_with_a_message_and_attributes(
    mistake: Mistake, tmp_path: Path, wording: Wording
) -> None:
    """Of its own type; what was given, and what would be right, stand in both, and no path of a library."""
    folder = written(tmp_path, mistake.files)
    with pytest.raises(mistake.kind) as caught:
        mistake.act(folder)
    assert type(caught.value) is mistake.kind
    found = {name: getattr(caught.value, name) for name in mistake.attributes}
    told = {name: comparable(value, folder) if isinstance(value, str) else value for name, value in found.items()}
    assert told == mistake.attributes
    assert comparable(str(caught.value), folder) == wording
    assert str(Path(handrail.__file__).parent) not in str(caught.value)
    assert "site-packages" not in str(caught.value)


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: f"{slip.door}: {slip.what}")
def test_a_slip_on_the_command_line(
    slip: Slip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Its exit code, and what is said of it word by word, on standard error; no path of a library, and no traceback."""
    monkeypatch.chdir(written(tmp_path, slip.files))
    code, _, err = typed(*slip.words)
    assert (code, comparable(err, tmp_path)) == (slip.code, wording)
    assert str(Path(handrail.__file__).parent) not in err
    assert "site-packages" not in err


def test_options_of_another_type_are_refused(tmp_path: Path) -> None:
    """Such as a model in their place."""
    (tmp_path / "desk.agent").write_text("---\nname: desk\n---\nYou work at the desk.\n")
    model: Any = ScriptedModel([Reply(text="Hello.")])
    with pytest.raises(InvalidArgumentError, match=r"RunOptions\(model=") as caught:
        load_agent(tmp_path / "desk.agent").run("Hello.", model)
    assert (caught.value.function, caught.value.argument, caught.value.value_type) == (
        "Agent.run",
        "options",
        ScriptedModel,
    )
