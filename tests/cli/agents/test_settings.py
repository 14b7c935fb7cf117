"""Which model runs an agent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from handrail.cli.agents.settings import NamedModel, check_name, chosen_model, open_model
from handrail.testing import ScriptedModel
from tests.wording import Wording

TYPED = "--model"


@pytest.mark.parametrize(
    "typed, file, project, environment, chosen",
    [
        ("a", "b", "c", {"HANDRAIL_MODEL": "d"}, NamedModel("a", "--model")),
        (None, "b", "c", {"HANDRAIL_MODEL": "d"}, NamedModel("b", "the agent file")),
        (None, None, "c", {"HANDRAIL_MODEL": "d"}, NamedModel("c", "[tool.handrail] of pyproject.toml")),
        (None, None, None, {"HANDRAIL_MODEL": " d "}, NamedModel("d", "HANDRAIL_MODEL")),
        (None, None, None, {"HANDRAIL_MODEL": " "}, None),
        (None, None, None, {}, None),
    ],
)
def test_what_is_typed_counts_most(
    typed: str | None, file: str | None, project: str | None, environment: Mapping[str, str], chosen: NamedModel | None
) -> None:
    """Then the agent file, then the project, then the environment."""
    assert chosen_model(typed, file, project, environment) == chosen


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("openai:gpt-5.2", id="no key"),
        pytest.param("gpt-5", id="no provider"),
        pytest.param("nobody:gpt-5", id="unknown provider"),
        pytest.param(":", id="no name"),
        pytest.param("openai:", id="only a provider"),
        pytest.param("groq:llama", id="no package"),
    ],
)
def test_a_model_that_cannot_be_used_is_told(name: str, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """A key, a package or the model may be missing; nothing has been asked yet."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(CycloptsError) as caught:
        open_model(NamedModel(name, "the agent file"))
    assert str(caught.value) == wording


def test_a_script_plays_a_model(tmp_path: Path, wording: Wording) -> None:
    """It counts for every agent of the run, as a model that is typed does."""
    script = tmp_path / "script.yaml"
    script.write_text("replies: [{text: Hello.}]")
    named = NamedModel(f"script:{script}", TYPED)
    assert isinstance(open_model(named), ScriptedModel)
    assert named.typed
    assert NamedModel(f"script:{script}", "HANDRAIL_MODEL").typed
    assert not NamedModel("test", "HANDRAIL_MODEL").typed
    with pytest.raises(CycloptsError) as raised:
        open_model(NamedModel(f"script:{script}", "the agent file"))
    assert str(raised.value) == wording
    with pytest.raises(CycloptsError) as raised:
        open_model(NamedModel("script: ", TYPED))
    assert str(raised.value) == wording


@pytest.mark.parametrize("name", ["test", "openai:gpt-5.2", "groq:llama"])
def test_the_name_of_a_model_is_checked_without_key_and_package(name: str) -> None:
    """What is missing on this machine may be there on another."""
    check_name(NamedModel(name, "the agent file"))
    check_name(None)


def test_a_missing_package_of_an_extra_is_told_by_the_extra(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """What is installed is Handrail's extra, not another package's."""
    for module in [name for name in sys.modules if name.startswith("pydantic_ai.") and name.endswith(".openai")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(CycloptsError) as raised:
        open_model(NamedModel("openai:gpt-5.2", TYPED))
    assert str(raised.value) == wording
