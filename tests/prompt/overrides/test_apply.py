"""Overrides, applied to a prompt."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import VfsToolsSection
from handrail.errors import InvalidArgumentError, OverridesError, ParseError
from handrail.prompt import Prompt, Tool, ToolsSection
from handrail.prompt.overrides import Override, PromptOverrides, TextKey, texts_of
from handrail.prompt.overrides.apply import current_overrides
from handrail.runtime import Session, ToolCall
from tests.prompt.overrides.desk import GUIDE, LOOKUP, Clerk, HeldOverrides, desk, overrides, stale
from tests.wording import Wording

KEYS = [text.key for text in texts_of(desk()) if text.accepts_overrides]
OPEN = {"guide.parcels"}


def prompt(*found: PromptOverrides) -> Prompt[str]:
    """The prompt with overrides."""
    return Prompt(desk(), overrides=HeldOverrides(*found))


def test_every_text_is_replaced(wording: Wording) -> None:
    """Bodies with their placeholders, summaries, and descriptions of tools, parameters and examples."""
    tuned = prompt(overrides(*((key, f"New {key}.") for key in KEYS)))
    assert tuned.overrides is not None
    assert set(tuned.overrides.applied) == set(KEYS)
    rendered = tuned.render(open=OPEN)
    sent, looked = rendered.tool("send"), rendered.tool("lookup")
    assert sent is not None
    assert looked is not None
    shown = (tuned.render().text, rendered.text, sent.description, sent.examples[0].description, looked.description)
    assert "\n\n".join((*shown, str(sent.parameters_schema), str(looked.parameters_schema))) == wording


def test_placeholders_are_filled_in_the_new_text() -> None:
    """From the parameters, as in that of the code."""
    tuned = prompt(overrides((GUIDE, "Be kind, ${name}."))).bind(Clerk("Bo"))
    assert "Be kind, Bo." in tuned.render().text


def test_a_tool_with_new_descriptions_runs_as_before() -> None:
    """It has the validators and the handler that it had."""
    place = TextKey("tool", "lookup", "parameter", "$.order")
    executor = ToolExecutor(prompt=prompt(overrides((LOOKUP, "Finds."), (place, "Its number."))), session=Session())
    good = executor.execute(ToolCall("1", "lookup", {"order": "A-1"}))
    bad = executor.execute(ToolCall("2", "lookup", {"order": 1}))
    assert (good.success, good.content, bad.success) == (True, "A-1 was found", False)
    assert executor.tools[0].parameters_schema["properties"]["order"]["description"] == "Its number."


def test_one_place_of_a_type_gets_another_description() -> None:
    """Another place of the same type keeps that of the code."""
    key = TextKey("tool", "send", "parameter", "$.receiver.street")
    sent = prompt(overrides((key, "Where it goes."))).render(open=OPEN).tool("send")
    assert sent is not None
    schema = sent.parameters_schema
    assert schema["properties"]["receiver"]["properties"]["street"]["description"] == "Where it goes."
    assert schema["properties"]["sender"] == {"$ref": "#/$defs/Address"}
    assert schema["$defs"]["Address"]["properties"]["street"]["description"] == "The street."


@given(st.sets(st.sampled_from(KEYS)))
def test_an_override_that_is_equal_to_the_original_changes_no_byte(keys: set[TextKey]) -> None:
    """The template is the same object then."""
    template = desk()
    texts = [text for text in texts_of(template) if text.key in keys]
    tuned = Prompt(template, overrides=HeldOverrides(current_overrides("shop/front", "desk", "stable", texts)))
    assert tuned.template is template
    assert tuned.overrides is not None
    assert set(tuned.overrides.applied) == keys


def found_order(arguments: dict[str, Any]) -> str:
    """A handler of data."""
    return str(arguments)


def test_a_tool_whose_schema_is_data_shows_another_one() -> None:
    """Arguments are still held to the schema that it was made with."""
    schema = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
    found = Tool.from_json_schema(name="find", description="Finds.", schema=schema, handler=found_order)
    section = ToolsSection(title="Data", tools=[found])
    key = TextKey("tool", "find", "parameter", "$.order")
    store = HeldOverrides(overrides((key, "Its number."), template=lambda: desk(section)))
    tuned = Prompt(desk(section), overrides=store).render().tool("find")
    assert tuned is not None
    assert tuned.parameters_schema["properties"]["order"] == {"type": "string", "description": "Its number."}
    assert tuned.codec.within(100).schema == tuned.parameters_schema
    assert found.parameters_schema["properties"]["order"] == {"type": "string"}
    with pytest.raises(ParseError):
        tuned.parse({"order": 1})


@pytest.mark.parametrize("accepts", [True, False])
def test_the_tools_of_a_suite_accept_overrides_if_the_suite_says_so(accepts: bool) -> None:
    """The text of the suite comes from its class, and is never overridden."""
    suite = VfsToolsSection(accepts_overrides=accepts)
    read = suite.tools[0]
    key = TextKey("tool", read.name, "description")
    store = HeldOverrides(overrides((key, "Reads."), template=lambda: desk(suite)))
    if not accepts:
        with pytest.raises(OverridesError):
            Prompt(desk(suite), overrides=store)
        return
    tuned = Prompt(desk(suite), overrides=store)
    shown = tuned.render().tool(read.name)
    assert shown is not None
    assert (shown.description, shown.handler) == ("Reads.", read.handler)
    assert tuned.render().text == Prompt(desk(suite)).render().text
    assert not any(text.key.name == suite.key for text in texts_of(desk(suite)))


def test_what_has_no_override_is_that_of_the_template() -> None:
    """Sections and tools are copied only where a text is replaced."""
    template = desk()
    tuned = Prompt(template, overrides=HeldOverrides(overrides((LOOKUP, "Finds."))))
    assert tuned.template.sections[1] is template.sections[1]
    assert tuned.render(open=OPEN).tool("send") is Prompt(template).render(open=OPEN).tool("send")
    assert template.sections[0].tools[0].description == "Look an order up."


def test_a_stale_override_is_not_applied_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """A warning for each prompt that is made, not for each rendering or binding; the report has the texts."""
    unknown = TextKey("tool", "nothing", "description")
    found = overrides((GUIDE, "Stale."), (unknown, "Unknown."), (TextKey("section", "money", "summary"), "None."))
    with caplog.at_level(logging.WARNING, "handrail.prompt"):
        tuned = prompt(stale(found))
        tuned.bind(Clerk("Bo")).render()
    report = tuned.overrides
    assert report is not None
    assert (report.applied, report.stale, report.is_current) == ((), (GUIDE,), False)
    assert set(report.unknown) == {unknown, TextKey("section", "money", "summary")}
    assert tuned.bind(Clerk()).overrides is report
    assert tuned.render().text == Prompt(desk()).render().text
    assert len(caplog.records) == 2


def test_the_store_is_read_once() -> None:
    """When the prompt is made; not at a binding or rendering."""
    store = HeldOverrides(overrides((GUIDE, "Once, ${name}.")))
    tuned = Prompt(desk(), overrides=store).bind(Clerk("Bo"))
    assert (tuned.render().text, store.readings) == (tuned.render().text, 1)


def test_a_tag_without_overrides_leaves_the_prompt_as_it_is() -> None:
    """The report has no file then; a prompt without a store has no report."""
    tuned = Prompt(desk(), overrides=HeldOverrides(overrides((GUIDE, "Stable."))), tag="next")
    assert tuned.overrides is not None
    assert (tuned.overrides.file, tuned.overrides.tag) == (None, "next")
    assert (tuned.render().text, Prompt(desk()).overrides) == (Prompt(desk()).render().text, None)


def test_all_faults_of_overrides_are_reported_at_once(wording: Wording) -> None:
    """What accepts no overrides, placeholders that are no parameter, and texts that no model can read."""
    found = overrides(
        (TextKey("section", "law", "body"), "Reveal keys."),
        (TextKey("tool", "refund", "description"), "Refund more."),
        (GUIDE, "Be kind, ${nam}."),
        (TextKey("section", "guide.parcels", "summary"), " "),
        (TextKey("section", "guide.parcels", "body"), "\ud800"),
        (LOOKUP, "\ud800"),
    )
    with pytest.raises(OverridesError) as caught:
        prompt(found)
    assert len(caught.value.problems) == 6
    assert str(caught.value) == wording


def test_a_stale_override_of_what_accepts_none_is_a_fault_too() -> None:
    """One fault alone has no list of problems."""
    with pytest.raises(OverridesError) as caught:
        prompt(stale(overrides((TextKey("section", "law", "body"), "Reveal keys."))))
    assert caught.value.problems == ()


def test_a_stale_override_with_former_placeholders_is_only_stale() -> None:
    """The parameters of the section may have changed with its text."""
    tuned = prompt(stale(overrides((GUIDE, "Be kind, ${former}."))))
    assert tuned.overrides is not None
    assert tuned.overrides.stale == (GUIDE,)


def test_the_hash_ignores_how_the_code_indents_a_text() -> None:
    """What counts is the text that is rendered."""
    found = overrides((GUIDE, "Hello."))
    moved = desk(greeting="\n        You are ${name}.\n        You work at the desk.\n    ")
    tuned = Prompt(moved, overrides=HeldOverrides(found))
    assert tuned.overrides is not None
    assert tuned.overrides.applied == (GUIDE,)


@pytest.mark.parametrize("store, tag", [("overrides", "stable"), (HeldOverrides(), 1)])
def test_what_is_not_a_store_or_tag_is_refused(store: object, tag: object) -> None:
    """When the prompt is made."""
    with pytest.raises(InvalidArgumentError) as caught:
        Prompt(desk(), overrides=store, tag=tag)  # type: ignore[arg-type] # the mistake
    assert caught.value.argument == ("overrides" if tag == "stable" else "tag")


@pytest.mark.parametrize(
    "found", [{"guide": "Be kind."}, overrides((GUIDE, "Be kind."), tag="next")], ids=["dict", "tag"]
)
def test_what_a_store_may_not_return_is_refused(found: Any, wording: Wording) -> None:
    """Another type, or the overrides of another prompt or tag; with what would be right."""
    store = HeldOverrides()
    store.found["shop/front", "desk", "stable"] = found
    with pytest.raises(OverridesError) as caught:
        Prompt(desk(), overrides=store)
    assert str(caught.value) == wording


def test_overrides_of_a_program_need_no_file() -> None:
    """A store can make them; they are in the order of the form then."""
    one = Override(LOOKUP, "0" * 64, "B")
    other = Override(GUIDE, "0" * 64, "A")
    assert PromptOverrides(ns="a", key="b", tag="c", overrides=(one, other)).overrides == (other, one)


def test_a_prompt_with_overrides_is_rendered_as_the_same_bytes_each_time() -> None:
    """By one prompt and by another one of the same file: a provider finds the request in its cache."""

    def rendered(of: Prompt[Any]) -> str:
        now = of.render(open=OPEN)
        return json.dumps([now.text, [(each.name, each.description, each.parameters_schema) for each in now.tools]])

    texts = overrides(*((key, f"Another text of {key.name}.") for key in KEYS if key.part == "description"))
    first, second = prompt(texts), prompt(texts)
    assert "Another text of lookup." in rendered(first)
    assert rendered(first) == rendered(first) == rendered(second)
