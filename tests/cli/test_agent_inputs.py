"""The input of an agent, its model, and where its session is stored."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from handrail.cli.agents.run import read_prompt
from handrail.cli.agents.settings import NamedModel, check_name, chosen_model, chosen_store, resolve_model, within
from handrail.testing import ScriptedModel
from tests.wording import Wording


class Keyboard(io.StringIO):
    """A terminal, or something else that holds text."""

    def __init__(self, text: str = "", *, terminal: bool = False) -> None:
        super().__init__(text)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    "given, stream, heard",
    [
        ("sort it", Keyboard("other", terminal=False), "sort it"),
        ("sort it", None, "sort it"),
        (" two\nlines ", None, " two\nlines "),
        (None, Keyboard("sort it\n"), "sort it\n"),
        (None, Keyboard(" \n"), None),
        (None, Keyboard("x", terminal=True), None),
        (None, None, None),
    ],
)
def test_input_is_typed_or_read(given: str | None, stream: Keyboard | None, heard: str | None) -> None:
    """Standard input is read where it is not a terminal."""
    assert read_prompt(given, stream) == heard


@pytest.mark.parametrize("terminal", [True, False])
def test_input_is_read_where_that_is_asked_for(terminal: bool, wording: Wording) -> None:
    """From a terminal too, up to the end of the input."""
    assert read_prompt(None, Keyboard("sort it", terminal=terminal), reading=True) == "sort it"
    with pytest.raises(CycloptsError) as raised:
        read_prompt("sort it", Keyboard("", terminal=terminal), reading=True)
    assert str(raised.value) == wording
    for nothing in (Keyboard(" ", terminal=terminal), None):
        with pytest.raises(CycloptsError) as raised:
            read_prompt(None, nothing, reading=True)
        assert str(raised.value) == wording


@pytest.mark.parametrize("content, mode", [(b"caf\xe9", "strict"), (b"caf\xe9", "surrogateescape")])
def test_input_that_is_no_utf_8_is_told(content: bytes, mode: str, wording: Wording) -> None:
    """Whatever the stream makes of it."""
    stream = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors=mode)
    with pytest.raises(CycloptsError) as raised:
        read_prompt(None, stream)
    assert str(raised.value) == wording


@pytest.mark.parametrize(
    "typed, project, environment, url",
    [
        ("sqlite:///a.db", "sqlite:///b.db", {"HANDRAIL_STORE": "sqlite:///c.db"}, "sqlite:///a.db"),
        (None, "sqlite:///b.db", {"HANDRAIL_STORE": "sqlite:///c.db"}, "sqlite:////desk/b.db"),
        (None, None, {"HANDRAIL_STORE": " sqlite:///c.db "}, "sqlite:///c.db"),
        (None, None, {"HANDRAIL_STORE": ""}, None),
        (None, None, {}, None),
        ("memory:", "sqlite:///b.db", {}, None),
        (None, "memory:", {"HANDRAIL_STORE": "sqlite:///c.db"}, None),
    ],
)
def test_the_store_is_the_one_that_was_typed_then_that_of_the_project(
    typed: str | None, project: str | None, environment: Mapping[str, str], url: str | None
) -> None:
    """Then that of the environment; one in memory is none."""
    assert chosen_store(typed, project, Path("/desk"), environment) == url


@pytest.mark.parametrize(
    "url, placed",
    [
        ("sqlite:////srv/desk.db", "sqlite:////srv/desk.db"),
        ("sqlite:///my%20desk.db", "sqlite:////desk/my%20desk.db"),
        ("postgresql://host/desk", "postgresql://host/desk"),
    ],
)
def test_a_database_of_a_project_lies_in_its_folder(url: str, placed: str) -> None:
    """Wherever the command is typed."""
    assert within(Path("/desk"), url) == placed


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
        resolve_model(NamedModel(name, "the agent file"))
    assert str(caught.value) == wording


def test_a_script_plays_a_model(tmp_path: Path, wording: Wording) -> None:
    """It counts for every agent of the run, as a model that is typed does."""
    script = tmp_path / "script.yaml"
    script.write_text("replies: [{text: Hello.}]")
    named = NamedModel(f"script:{script}", TYPED)
    assert isinstance(resolve_model(named), ScriptedModel)
    assert named.typed
    assert NamedModel(f"script:{script}", "HANDRAIL_MODEL").typed
    assert not NamedModel("test", "HANDRAIL_MODEL").typed
    with pytest.raises(CycloptsError) as raised:
        resolve_model(NamedModel(f"script:{script}", "the agent file"))
    assert str(raised.value) == wording
    with pytest.raises(CycloptsError) as raised:
        resolve_model(NamedModel("script: ", TYPED))
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
        resolve_model(NamedModel("openai:gpt-5.2", TYPED))
    assert str(raised.value) == wording
