"""The cases of weakincentives' tests of prompt overrides, in the words of Handrail.

The cases are those of `tests/prompts/overrides` and `tests/prompt/overrides`. What is different here, on purpose:

| there | here | why |
|---|---|---|
| `expected_hash` of a section, `expected_contract_hash` of a tool | a hash of each text | one change makes one stale |
| the hash of a tool has its schemas | that of its description alone | a type is not what is replaced |
| stale and unknown entries are left out when a file is read | they are reported and logged | else it goes unseen |
| an entry of what accepts none is left out | it is an error | the same |
| writing a stale entry is an error | `apply` refuses it, `write` does not | a store does not know the prompts |
| a file may set the visibility | it cannot | it decides which tools there are |
| task examples are changed, added and removed | only descriptions are replaced | calls are checked with the code |
| one override is stored, or deleted, at a time | a file is written whole | a file is what is reviewed |
| the root is searched with git | the folder is given | nothing is found by accident |
| a missing file is `None`, and so is one with stale entries alone | only the first is | the second is reported |
| a seed that finds a stale file is an error | it keeps what is there | `check` reports it |
| rendering asks the store | making the prompt does | rendering is a pure function |
| the files of a root are listed | a command takes one prompt | the code has the prompts, not the folder |
| `null` stands for no description, or for no parameters | it is an error; the key is left out | one way to say it |
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from handrail.errors import OverridesError, PromptValidationError
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Section
from handrail.prompt.overrides import (
    Override,
    OverrideFiles,
    PromptOverrides,
    TextKey,
    dump_overrides,
    parse_overrides,
    text_hash,
    texts_of,
)
from handrail.prompt.overrides.apply import current_overrides
from handrail.prompt.overrides.store import LARGEST_FILE
from tests.prompt.overrides.desk import lookup, refund

BODY = TextKey("section", "intro", "body")
TOOL = TextKey("tool", "lookup", "description")
PARAMETER = TextKey("tool", "lookup", "parameter", "$.order")


class Drawn(Section[None]):
    """A section whose class makes its text."""

    def render_body(self, params: None) -> str:
        """Always the same."""
        return "Drawn."


def template(text: str = "Hello.") -> PromptTemplate[str]:
    """A prompt of three sections and two tools."""
    intro = MarkdownSection(title="Intro", template=text, summary="Short.", starts_open=True, tools=[lookup, refund])
    closed = MarkdownSection(title="Fixed", template="Fixed.", accepts_overrides=False)
    return PromptTemplate(ns="demo", key="welcome", sections=[intro, closed, Drawn(title="Drawn")])


def found(*overrides: tuple[TextKey, str, str]) -> PromptOverrides:
    """Overrides: key, original and text of each."""
    entries = tuple(Override(key, text_hash(original), text) for key, original, text in overrides)
    return PromptOverrides(ns="demo", key="welcome", tag="latest", overrides=entries)


def made(folder: Path, overrides: PromptOverrides | None = None) -> Prompt[str]:
    """The prompt over a store with these overrides."""
    store = OverrideFiles(folder)
    if overrides is not None:
        store.write(overrides)
    return Prompt(template(), overrides=store, tag="latest")


def test_the_texts_of_a_prompt_have_hashes() -> None:
    """Of sections with a template, of tools and their parameters; not of a section whose class makes its text."""
    hashes = {text.key: text.sha256 for text in texts_of(template())}
    assert hashes[BODY] == text_hash("Hello.")
    assert hashes[PARAMETER] == text_hash("The number of the order.")
    assert not any(key.name == "drawn" for key in hashes)


def test_texts_say_whether_they_accept_overrides() -> None:
    """A tool and a section with `accepts_overrides=False` do not."""
    refusing = {text.key.name for text in texts_of(template()) if not text.accepts_overrides}
    assert refusing == {"fixed", "refund"}


def test_matching_overrides_are_applied(tmp_path: Path) -> None:
    """To the text of a section, to its summary, and to the descriptions of a tool and its parameter."""
    summary = TextKey("section", "intro", "summary")
    tuned = made(
        tmp_path,
        found(
            (BODY, "Hello.", "Welcome."),
            (summary, "Short.", "Shorter."),
            (TOOL, "Look an order up.", "Find."),
            (PARAMETER, "The number of the order.", "Which."),
        ),
    )
    shown = tuned.render().tool("lookup")
    assert shown is not None
    assert (shown.description, shown.parameters_schema["properties"]["order"]["description"]) == ("Find.", "Which.")
    assert "Welcome." in tuned.render().text
    assert "Shorter." in tuned.render(open=set()).text


def test_a_missing_file_changes_nothing(tmp_path: Path) -> None:
    """And is no error."""
    assert made(tmp_path).render().text == Prompt(template()).render().text


def test_stale_and_unknown_overrides_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others of the file are applied; here the log and the report have what was left out."""
    with caplog.at_level(logging.WARNING, "handrail.prompt"):
        tuned = made(
            tmp_path,
            found(
                (BODY, "Former.", "A"),
                (TextKey("tool", "gone", "description"), "", "B"),
                (TOOL, "Look an order up.", "C"),
            ),
        )
    assert tuned.overrides is not None
    assert (tuned.overrides.stale, tuned.overrides.applied, len(caplog.records)) == ((BODY,), (TOOL,), 2)


@pytest.mark.parametrize("name", ["section fixed", "tool refund"])
def test_what_accepts_no_overrides_has_none(tmp_path: Path, name: str) -> None:
    """Here it is an error that names it."""
    key = TextKey("section", "fixed", "body") if name == "section fixed" else TextKey("tool", "refund", "description")
    with pytest.raises(OverridesError, match=name):
        made(tmp_path, found((key, "Fixed.", "Changed.")))


@pytest.mark.parametrize(
    "text",
    [
        "not JSON",
        "[]",
        '{"version": 2, "ns": "demo", "key": "welcome", "tag": "latest"}',
        '{"version": 1, "ns": "other", "key": "welcome", "tag": "latest"}',
        '{"version": 1, "ns": "demo", "key": "welcome", "tag": "latest", "sections": []}',
        '{"version": 1, "ns": "demo", "key": "welcome", "tag": "latest", "tools": []}',
        '{"version": 1, "ns": "demo", "key": "welcome", "tag": "latest", "tools": {"lookup": 1}}',
        '{"version": 1, "ns": "demo", "key": "welcome", "tag": "latest", "tools": {"lookup": {"parameters": null}}}',
        '{"version": 1, "ns": "demo", "key": "welcome", "tag": "latest", "sections": {"intro": {"enabled": false}}}',
        '{"version": 1, "ns": "demo", "key": "welcome", "tag": "latest", "sections": {"intro": {"body": {"text": 1}}}}',
    ],
)
def test_a_file_that_is_not_one_of_overrides_is_an_error(tmp_path: Path, text: str) -> None:
    """Of its JSON, its head, and each of its parts."""
    place = OverrideFiles(tmp_path).path("demo", "welcome", "latest")
    place.parent.mkdir(parents=True)
    place.write_text(text)
    with pytest.raises(OverridesError) as caught:
        made(tmp_path)
    assert caught.value.file == str(place)


def test_overrides_are_serialized_and_read_back() -> None:
    """Sections and tools, and a file without either."""
    for overrides in (found(), found((BODY, "Hello.", "A\n\nB"), (TOOL, "", "C"))):
        assert parse_overrides(dump_overrides(overrides), file="f") == overrides


def test_a_section_says_with_a_boolean_whether_it_accepts_overrides() -> None:
    """A text would count as true."""
    with pytest.raises(PromptValidationError) as caught:
        MarkdownSection(title="A", template="A", accepts_overrides="no")  # type: ignore[arg-type] # the mistake
    assert caught.value.section_path == ("a",)


def test_a_seed_has_the_texts_of_the_prompt(tmp_path: Path) -> None:
    """Those that accept overrides, with their hashes; applied, they change nothing."""
    texts = list(texts_of(template()))
    seeded = current_overrides("demo", "welcome", "latest", texts)
    assert {each.key for each in seeded.overrides} == {text.key for text in texts if text.accepts_overrides}
    prompt = made(tmp_path, seeded)
    assert prompt.render().text == Prompt(template()).render().text
    assert prompt.overrides is not None
    assert prompt.overrides.is_current


@pytest.mark.parametrize("ns, key, tag", [("..", "k", "t"), ("a b", "k", "t"), ("n", "k", "a/b"), ("n", "", "t")])
def test_a_name_that_cannot_be_a_part_of_a_path_is_an_error(tmp_path: Path, ns: str, key: str, tag: str) -> None:
    """For reading and for writing, and the path itself; a valid one has namespace, key and tag."""
    store = OverrideFiles(tmp_path)
    assert store.path("demo", "welcome", "latest") == tmp_path / "demo" / "welcome" / "latest.json"
    with pytest.raises(OverridesError):
        store.path(ns, key, tag)
    with pytest.raises(OverridesError):
        store.read(ns, key, tag)


def test_a_write_that_fails_leaves_the_former_file(tmp_path: Path) -> None:
    """A file is replaced whole, and nothing else stands beside it."""
    store = OverrideFiles(tmp_path)
    store.write(found((BODY, "Hello.", "Hi.")))
    with pytest.raises(OverridesError):
        store.write(found((BODY, "Hello.", "x" * LARGEST_FILE)))
    assert store.read("demo", "welcome", "latest") == found((BODY, "Hello.", "Hi."))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["latest.json"]
