"""`handrail.agents.agent_file`: JSON Schema and parser take the same front matter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from handrail.agents.agent_file import AGENT_FILE_KEYS, NAME_PATTERN, AgentFile, parse_agent_file
from handrail.errors import AgentFileError

PUBLISHED = Path(__file__).parents[3] / "docs" / "reference" / "agent-file.schema.json"
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
        "description": TEXTS,
        "model": TEXTS,
        "tools": st.lists(TEXTS, max_size=3, unique_by=str.strip),
        "toolsets": st.lists(TEXTS, max_size=3, unique_by=str.strip),
        "disclose": st.dictionaries(WORDS, TEXTS, max_size=0),
        "exclude": st.lists(st.sampled_from([".env", "*.key", "secrets/**", "a b"]), max_size=3),
        "show_git": st.booleans(),
        "overrides": TEXTS,
        "input_model_ref": TEXTS,
    },
)
BROKEN = st.fixed_dictionaries(
    {},
    optional={
        "name": ANYTHING,
        "description": ANYTHING,
        "model": ANYTHING,
        "tools": NAMES | ANYTHING,
        "toolsets": NAMES | ANYTHING,
        # Only the parser knows whether the toolsets of a mapping of texts are in the file.
        "disclose": SCALARS | st.dictionaries(WORDS, st.integers(), max_size=2),
        "exclude": st.lists(WORDS, max_size=3) | SCALARS | st.dictionaries(WORDS, SCALARS, max_size=2),
        "show_git": ANYTHING,
        "overrides": ANYTHING,
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
