"""Agent files and their JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from handrail.agents import AgentFile, agent_file, parse_agent_file, read_agent_file
from handrail.agents.agent_file import AGENT_FILE_KEYS, NAME_PATTERN
from handrail.errors import AgentFileError, DocumentError
from tests.wording import Wording

FULL = """\
---
# yaml-language-server: $schema=../docs/agent-file.schema.json
name: desk
description: Answers what customers ask.
model: openai:gpt-5.2
tools: [lookup, ' refund ']
toolsets:
  - files
  - research
---

# Desk

Be kind.
---
Be brief.

"""


def parse(head: str, body: str = "Be kind.") -> AgentFile:
    """An agent file of this front matter."""
    return parse_agent_file(f"---\n{head}\n---\n{body}", file="desk.agent")


def refused(text: str) -> AgentFileError:
    """The error for a text that is refused."""
    with pytest.raises(AgentFileError) as caught:
        parse_agent_file(text, file="desk.agent")
    return caught.value


def fault(head: str) -> AgentFileError:
    """The one error for this front matter; the line of `name` comes before it, so it begins in line 3."""
    error = refused(f"---\nname: desk\n{head}\n---\nBe kind.")
    assert error.problems == ()
    return error


@pytest.mark.requirement("A-01")
def test_an_agent_file_says_everything_that_an_agent_has(tmp_path: Path) -> None:
    """Both lists in their order, blanks around names gone, and the body without its empty first and last lines."""
    file = tmp_path / "other.agent"
    file.write_text(FULL, encoding="utf-8")
    assert read_agent_file(file) == AgentFile(
        name="desk", description="Answers what customers ask.", model="openai:gpt-5.2", tools=("lookup", "refund"),
        toolsets=("files", "research"), instructions="# Desk\n\nBe kind.\n---\nBe brief.", path=file,
    )  # fmt: skip


@pytest.mark.requirement("A-01")
@pytest.mark.parametrize("head", ["name: desk", "name: desk\ntools: []\ntoolsets: [ ]"])
def test_lists_that_are_missing_or_empty_name_nothing(head: str) -> None:
    """So does everything else that may be missing."""
    assert parse(head) == AgentFile(name="desk", instructions="Be kind.")


def test_the_example_of_the_module_is_an_agent_file() -> None:
    """What the docstring shows can be copied."""
    text = (agent_file.__doc__ or "").partition("\n\n")[2]
    assert parse_agent_file(text, file="desk.agent").toolsets == ("filesystem_cwd_ro",)


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"], ids=repr)
def test_byte_order_marks_and_all_line_breaks_are_read(line_break: str, wording: Wording) -> None:
    """The instructions have plain line breaks, and a line of `---` may end in blanks."""
    text = "\ufeff" + FULL.replace("---\n", "--- \t\n").replace("\n", line_break)
    assert parse_agent_file(text, file="desk.agent").instructions == wording
    broken = text.replace("tools: [", "toolz: [")
    assert str(refused(broken)) == wording


@pytest.mark.requirement("A-04")
@pytest.mark.parametrize("name", ["a b/../c", "x" * 65, "''", "é", "a.b", r'"a\nb"', "a/b", "\u0661"])
def test_other_names_are_refused_with_the_pattern(name: str, wording: Wording) -> None:
    """The name becomes that of a tool."""
    error = refused(f"---\nname: {name}\n---\nBe kind.")
    assert str(error).startswith("desk.agent:2:7: ")
    assert str(error) == wording
    assert error.field == "name"


LISTS = {
    "nothing": "{}:", "item number": "{}: [1]", "mapping": "{}: {{a: b}}", "item blank": '{}: [" \\u3000\\t"]',
    "item list": "{}: [[a]]", "item twice": "{}: [a, b, ' a']",
}  # fmt: skip


@pytest.mark.requirement("A-02")
@pytest.mark.parametrize("field", ["tools", "toolsets"])
@pytest.mark.parametrize("head", LISTS.values(), ids=LISTS)
def test_a_list_of_names_holds_names_and_each_once(field: str, head: str, wording: Wording) -> None:
    """The error has file, line, column, key, and the item."""
    error = fault(head.replace("{}", field))
    assert str(error) == wording
    assert (error.line, error.field) == (3, field)


@pytest.mark.requirement("A-03")
@pytest.mark.parametrize("field", ["tools", "toolsets"])
def test_settings_of_a_toolset_are_refused(field: str, wording: Wording) -> None:
    """The error has the keys, and says that names are all."""
    error = fault(f"{field}: [{{name: a, per_run_step: true}}]")
    assert str(error) == wording
    assert fault("per_run_step: true").field == "per_run_step"


@pytest.mark.requirement("A-04")
def test_an_unknown_key_is_told_with_the_nearest_one(wording: Wording) -> None:
    """And with all that there are."""
    error = fault("toolz: [a]")
    assert str(error) == wording
    assert error.field == "toolz"


VALUES = {
    "mapping": ("model: {}", 3, "model"),
    "number": ("description: 0x10", 3, "description"), "boolean": ("model: true", 3, "model"),
    "nothing": ("model:\ntools: []", 3, "model"), "colon": ("description: this: that", 3, None),
    "NUL": ("model: \0", 3, None), "itself": ("tools: &a [*a]", 3, None),
    "outside": ("exclude: [../x]", 3, "exclude"),
}  # fmt: skip


@pytest.mark.parametrize("head, line, field", VALUES.values(), ids=VALUES)
def test_other_faults_are_told_with_their_line_of_the_file(
    head: str, line: int, field: str | None, wording: Wording
) -> None:
    """Lines are counted from the first of the file."""
    error = fault(head)
    assert str(error) == wording
    assert (error.file, error.line, error.field) == ("desk.agent", line, field)


def test_all_faults_of_a_file_are_told_at_once_in_their_order(wording: Wording) -> None:
    """The message has each, and so has `problems`."""
    error = refused("---\nname: a b\ntoolz: []\ntools: [1, x, x]\nmodel: [a]\nmodel: b\ndescription: 5\n---\n")
    assert str(error) == wording
    assert [(found.line, found.column) for found in error.problems if isinstance(found, DocumentError)] == [
        (2, 7), (3, 1), (4, 9), (5, 8), (6, 1), (7, 14), (8, 1),
    ]  # fmt: skip
    assert all(isinstance(found, AgentFileError) and str(found) in str(error) for found in error.problems)


HEADS = st.lists(
    st.tuples(
        st.sampled_from([*AGENT_FILE_KEYS, "toolz", "per_run_step"]),
        st.sampled_from(["", " a", " [a, 1, [b], {c: d}]", " |"]),
    ),
    max_size=6,
).map(lambda entries: "\n".join(f"{key}:{value}" for key, value in entries))


@given(
    st.text()
    | st.tuples(HEADS | st.text(), st.text()).map("\n---\n".join).map("---\n{}".format)
    | st.text(st.sampled_from("-nametols: []{}\n\r\t'\"&*|#\0\ud800"))
)
def test_no_text_raises_anything_else(text: str) -> None:
    """An agent file, or the one error, which can be shown."""
    try:
        found = parse_agent_file(text, file="desk.agent")
    except AgentFileError as error:
        assert str(error).startswith("desk.agent:")  # noqa: PT017 - whether a text is refused is not known beforehand
    else:
        assert found.name
        assert found.instructions


PUBLISHED = Path(__file__).parents[2] / "docs" / "reference" / "agent-file.schema.json"


SCHEMA: Any = json.loads(PUBLISHED.read_text(encoding="utf-8"))


VALIDATOR: Any = Draft202012Validator(SCHEMA)  # pyright does not know the types of its methods


BLANKS = st.sampled_from(["", " ", "\n", "\t ", "\u3000"])


WORDS = st.sampled_from(["a", "b-2", "on", "true", "1", "~", "null", "", "x" * 64, "x" * 65, "é", "a b", "a/b"])


TEXTS = st.tuples(BLANKS, WORDS, BLANKS).map("".join) | st.text(st.characters(exclude_categories=["Cc", "Cs"]))


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS


ANYTHING = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(WORDS, SCALARS, max_size=2)


NAMES = st.lists(TEXTS, max_size=4) | st.lists(WORDS, max_size=3, unique=True)


VALID = st.fixed_dictionaries(
    {"name": st.from_regex(NAME_PATTERN.replace("$", r"\Z"))},
    optional={
        "description": TEXTS, "model": TEXTS, "tools": st.lists(TEXTS, max_size=3, unique_by=str.strip),
        "toolsets": st.lists(TEXTS, max_size=3, unique_by=str.strip),
        "exclude": st.lists(st.sampled_from([".env", "*.key", "secrets/**", "a b"]), max_size=3),
        "show_git": st.booleans(), "input_model_ref": TEXTS,
    },
)  # fmt: skip


BROKEN = st.fixed_dictionaries(
    {},
    optional={
        "name": ANYTHING,
        "description": ANYTHING,
        "model": ANYTHING,
        "tools": NAMES | ANYTHING,
        "toolsets": NAMES | ANYTHING,
        "exclude": st.lists(WORDS, max_size=3) | SCALARS | st.dictionaries(WORDS, SCALARS, max_size=2),
        "show_git": ANYTHING,
        "input_model_ref": ANYTHING,
        "toolz": ANYTHING,
        "per_run_step": st.booleans(),
    },
)


def parsed(front_matter: Any) -> AgentFile | None:
    """The file with this front matter; JSON is YAML."""
    try:
        return parse_agent_file(f"---\n{json.dumps(front_matter)}\n---\nBe kind.", file="desk.agent")
    except AgentFileError:
        return None


def twice_but_for_blanks(front_matter: Any) -> bool:
    """Whether a list has two names that differ only in the blanks around them."""
    entries: list[tuple[Any, Any]] = [*getattr(front_matter, "items", tuple)()]
    values = [value for key, value in entries if key in {"tools", "toolsets"}]
    lists: list[list[Any]] = [value for value in values if isinstance(value, list)]
    names = [[item.strip() for item in value if isinstance(item, str)] for value in lists]
    return any(len(set(found)) < len(found) for found in names)


def test_the_published_file_is_a_schema_of_all_keys() -> None:
    """In the order of the parser."""
    Draft202012Validator.check_schema(SCHEMA)
    assert tuple(SCHEMA["properties"]) == AGENT_FILE_KEYS


@given(VALID | BROKEN | ANYTHING)
def test_schema_and_parser_take_the_same_front_matter(front_matter: Any) -> None:
    """But for names that stand twice with other blanks around them, which only the parser can tell."""
    takes = VALIDATOR.is_valid(front_matter) and not twice_but_for_blanks(front_matter)
    assert takes == (parsed(front_matter) is not None)


def test_names_that_differ_only_in_blanks_are_the_one_difference() -> None:
    """The docstring of the module says so."""
    front_matter = {"name": "desk", "tools": ["a", " a"]}
    assert VALIDATOR.is_valid(front_matter)
    assert parsed(front_matter) is None
