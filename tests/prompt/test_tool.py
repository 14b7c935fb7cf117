"""Tools: their declaration, its faults, its copies, and what they parse and store."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Generic, Never, TypeVar, cast

import pytest
from pydantic import BaseModel

from handrail.errors import DumpError, ParseError, PromptValidationError, SchemaError, ToolSignatureError
from handrail.prompt import (
    External,
    IdempotencyConfig,
    MarkdownSection,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolExample,
    ToolResult,
    ToolsSection,
    tool,
)
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked, ToolMessage
from tests.kit import executor, raises, refusal
from tests.prompt.samples import Found, Guidance, Lookup, look_up, lookup_tool, named_tool
from tests.wording import Wording

NO_TYPES: Any = Tool
EFFECT_WORDS = ("read", "state", "external")


def test_only_a_lone_call_may_write() -> None:
    """A handler may write unless its tool reads or is concurrent."""
    tools = [lookup_tool(effect=effect, concurrent=flag) for effect in EFFECT_WORDS for flag in (False, True)]
    assert [each.writes for each in tools] == [False, False, True, False, True, False]


@pytest.mark.parametrize("max_bytes", [None, 1_000, 18])
def test_arguments_parse_in_any_form(max_bytes: int | None) -> None:
    """Text, bytes and decoded objects of a bounded size give the dataclass."""
    forms: list[str | bytes | dict[str, Any]] = ['{"entity_id": "a"}', b'{"entity_id": "a"}', {"entity_id": "a"}]
    assert [lookup_tool().parse(form, max_bytes=max_bytes) for form in forms] == [Lookup("a")] * 3


@pytest.mark.requirement("M-06h")
def test_too_many_bytes_are_not_parsed(wording: Wording) -> None:
    """The size is that in UTF-8, not in characters."""
    forms: list[str | bytes | dict[str, Any]] = ['{"entity_id":"ä"}', b'{"entity_id":"aa"}', {"entity_id": "aa"}]
    for form in forms:
        with raises(ParseError, wording):
            lookup_tool().parse(form, max_bytes=17)


def test_every_fault_of_the_arguments_is_told(wording: Wording) -> None:
    """A fault each for a wrong type, a missing field and an unknown one."""
    with raises(ParseError, wording):
        lookup_tool().parse('{"limit": "7", "entity": "a"}')


def test_a_tool_without_parameters_takes_nothing_in_any_form() -> None:
    """Models say nothing in several ways; each of them parses to `None`."""
    tool: Tool[Any, Any] = named_tool("ping")
    forms: list[str | bytes | dict[str, Any]] = ["{}", "", "null", b"{}", b"", {}, " { } "]
    assert [tool.parse(form) for form in forms] == [None] * len(forms)
    described: dict[str, object] = {"type": "object", "description": "Takes no arguments.", "properties": {}}
    assert tool.parameters_schema == described | {"additionalProperties": False}


def page(number: int = 1) -> int:
    """A page."""
    return number


def as_dict(arguments: dict[str, Any]) -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Page:
    number: int = 1


class Model(BaseModel):
    number: int = 1


PAGES: dict[str, Any] = {"type": "object", "properties": {"number": {"type": "integer"}}}


@pytest.mark.parametrize("nothing", ["", " \n", "null", " null ", b"", b"null", {}, None], ids=repr)
def test_nothing_is_no_arguments_where_all_have_defaults(nothing: Any) -> None:
    """However the parameters are declared; also in the key of an effect."""
    assert Tool[Page, None](name="page", description="d").parse(nothing) == Page()
    assert Tool[Model, None](name="page", description="d").parse(nothing) == Model()
    paged = tool(page)
    assert vars(paged.parse(nothing)) == {"number": 1}
    assert paged.key_params(nothing, paged.parse(nothing)) == paged.parse("{}")
    assert Tool.from_json_schema(name="page", description="d", schema=PAGES, handler=as_dict).parse(nothing) == {}
    with pytest.raises(ParseError) as raised:
        lookup_tool().parse(nothing)
    assert [path for path, _ in raised.value.faults] == ["$.entity_id"]


@pytest.mark.parametrize("arguments", ['{"a": 1}', "[]", {"a": 1}])
def test_a_tool_without_parameters_takes_nothing_else(arguments: str | dict[str, int]) -> None:
    """An argument that the tool does not have is a fault."""
    with pytest.raises(ParseError):
        named_tool("ping").parse(arguments)


def test_a_result_is_held_to_the_declared_type(wording: Wording) -> None:
    """A fault names what was returned and what was declared; a failure may go without a value."""
    tool: Tool[Any, Any] = lookup_tool()
    assert tool.result_fault(ToolResult.ok(Found("a"))) is None
    assert tool.result_fault(ToolResult.error("no")) is None
    wrong: list[ToolResult[Any]] = [ToolResult.ok(Lookup("a")), ToolResult("done", None)]
    no_text: Any = 5
    wrong += [ToolResult.error("no", Lookup("a")), ToolResult(no_text, Found("a"))]
    for result in (*wrong, ToolResult("done", Found("a"), no_text)):
        assert tool.result_fault(result) == wording
    assert named_tool("ping").result_fault(ToolResult.ok("pong")) == wording
    assert named_tool("ping").result_fault(ToolResult.ok(None)) is None


def test_a_kept_value_that_does_not_fit_is_refused(wording: Wording) -> None:
    """What another version of the tool has written may no longer be readable."""
    with pytest.raises(ParseError):
        lookup_tool().load_value(b'{"address": "a"}')
    with raises(ParseError, wording):
        named_tool("ping").load_value(b'"pong"')


UNCHECKED: Any = Tool


@dataclass(frozen=True)
class Opaque:
    """A dataclass without a schema."""

    made: object
    handle: type[int]


def refused(**changes: object) -> PromptValidationError:
    """The error that a tool with these changes is refused with."""
    return refusal(PromptValidationError, lookup_tool, **changes)


def without_context(params: Lookup) -> ToolResult[Found]:
    """A handler that forgets the context."""
    raise NotImplementedError


def of_other(params: Page, *, context: ToolContext) -> ToolResult[Found]:
    """A handler of another tool."""
    raise NotImplementedError


def returning_other(params: Lookup, *, context: ToolContext) -> ToolResult[Page]:
    """A handler that returns something else."""
    raise NotImplementedError


def ask(params: Lookup, key: str) -> ToolResult[Found] | None:
    """A reconciler."""
    raise NotImplementedError


def ask_without_key(params: Lookup) -> ToolResult[Found] | None:
    """A reconciler that forgets the key."""
    raise NotImplementedError


def example(**changes: object) -> ToolExample[Any, Any]:
    """An example that is right, but for the changes."""
    declared: dict[str, Any] = {"description": "One", "input": Lookup("a"), "output": Found("b")}
    declared.update(changes)
    return ToolExample(**declared)


def test_a_tool_without_types_is_shown_how_to_write_it(wording: Wording) -> None:
    """Where neither brackets nor a handler say them; the message has the form that is right."""
    with raises(PromptValidationError, wording) as caught:
        UNCHECKED(name="lookup", description="Looks up.")
    assert caught.value.tool == "lookup"


def test_a_tool_without_brackets_has_the_types_of_its_handler() -> None:
    """As type checkers infer them, plain or `async`, with `ToolResult.error(...)` beside."""

    async def look_up_later(params: Lookup, *, context: ToolContext) -> ToolResult[Found] | ToolResult[Never]:
        raise NotImplementedError

    for handler in (look_up, look_up_later):
        tool = Tool(name="lookup", description="Looks up.", handler=handler)
        assert (tool.params_type, tool.result_type) == (Lookup, Found)
        assert replace(tool, name="other").result_type is Found


@pytest.mark.requirement("M-06k")
def test_parameters_are_a_dataclass_or_none(wording: Wording) -> None:
    """Anything else is refused, and named."""
    kinds = [UNCHECKED[kind, None] for kind in (int, dict[str, int], "Lookup", Lookup("a"), Lookup | None)]
    wrong = [refusal(PromptValidationError, kind, name="lookup", description="Looks up.") for kind in kinds]
    assert [str(error) for error in wrong] == wording


def test_parameters_without_a_schema_are_refused_with_the_cause() -> None:
    """What serde says of the type is passed on and chained, and the type is named."""
    with pytest.raises(PromptValidationError) as caught:
        Tool[Opaque, None](name="lookup", description="Looks up.")
    assert isinstance(caught.value.__cause__, SchemaError)
    assert (caught.value.tool, caught.value.dataclass) == ("lookup", Opaque)


def test_a_result_is_of_a_type_that_json_has(wording: Wording) -> None:
    """Another type is refused, and named."""
    with raises(PromptValidationError, wording) as caught:
        UNCHECKED[Lookup, complex](name="lookup", description="Looks up.")
    assert caught.value.dataclass is complex
    assert isinstance(caught.value.__cause__, SchemaError)


REFUSED: list[dict[str, Any]] = [
    *({"name": name} for name in ("", "look up", "löök", "a" * 65, "look.up", "lookup\n", None, 5)),
    *({"description": description} for description in ("   ", "x" * 8_001, None)),
    *({"handler": handler} for handler in (without_context, of_other, returning_other, "look_up")),
    *({"effect": "write"}, {"effect": "read", "idempotency": IdempotencyConfig()}, {"idempotency": "auto"}),
    {"idempotency": IdempotencyConfig(strategy="params", param_keys=("order_id",))},
    *({"effect": External(reconcile=cast("Any", wrong))} for wrong in (ask_without_key, "ask")),
    *({"max_result_chars": limit} for limit in (999, True, 5000.0, None)),
    *({"timeout": 5}, {"timeout": timedelta(0)}, {"concurrent": "no"}, {"untrusted": True, "sanitizes": True}),
    {"examples": (example(), example(input=Found("a")))},
    *({"examples": (example(output=output),)} for output in (None, Lookup("a"))),
    *({"examples": (example(description="x" * 8_001),)},),
]


@pytest.mark.requirement("M-06l")
@pytest.mark.parametrize("changes", REFUSED, ids=range(len(REFUSED)))
def test_a_wrong_declaration_is_refused_with_the_cure(changes: dict[str, object], wording: Wording) -> None:
    """When the tool is made; the error names the tool."""
    error = refused(**changes)
    assert str(error) == wording
    assert error.tool == changes.get("name", "lookup")


def test_idempotency_may_be_switched_on_and_off() -> None:
    """`True` is the configuration by default."""
    tools = [tool(name="pay", description="Pay.", idempotency=given)(lambda: None) for given in (True, False)]
    assert [each.idempotency for each in tools] == [IdempotencyConfig(), None]


def test_examples_fit_the_schema(wording: Wording) -> None:
    """A field of the wrong type would teach the model a wrong call, so it is found."""
    error = refused(examples=(example(input=Lookup(5)),))  # type: ignore[arg-type]
    assert str(error) == wording
    assert isinstance(error.__cause__, DumpError)


def test_examples_of_a_tool_without_types_say_none(wording: Wording) -> None:
    """Where there are no parameters and no value, the example has none either."""
    nothing = ToolExample(description="Just so", input=None, output=None)
    tool = Tool[None, None](name="ping", description="Pings.", examples=(nothing,))
    assert tool.examples == (nothing,)
    with raises(PromptValidationError, wording):
        UNCHECKED[None, None](name="ping", description="Pings.", examples=(example(input=5, output=None),))


def find_out(params: Lookup, key: str) -> ToolResult[Found] | None:
    """Find out."""
    return None


SAID = External(
    not_applied_on=(ConnectionRefusedError,), on_orphan="reconcile", reconcile=find_out, lease=timedelta(minutes=9)
)
EFFECTS: list[dict[str, Any]] = [
    *({}, {"effect": "read"}, {"effect": "state"}, {"effect": "external"}, {"effect": SAID}),
    {"effect": External(accept_late_result=True), "idempotency": IdempotencyConfig()},
    *({"idempotency": IdempotencyConfig()}, {"effect": "read", "concurrent": True, "timeout": timedelta(seconds=3)}),
]


def full_tool(**options: Any) -> Tool[Lookup, Found]:
    """A tool."""
    example = ToolExample(description="One.", input=Lookup("1"), output=Found("1"))
    return lookup_tool(examples=(example,), **options)


def shown(made: Tool[Any, Any]) -> dict[str, object]:
    """Every attribute of a tool."""
    names = [each.name for each in fields(made)]
    return {name: getattr(made, name) for name in names if name not in {"type_arguments", "masking"}}


@pytest.mark.parametrize("options", EFFECTS, ids=range(len(EFFECTS)))
def test_a_copy_of_a_tool_has_every_attribute_of_it(options: dict[str, Any], wording: Wording) -> None:
    """Also a copy of a copy; and what is replaced is checked as anew."""
    made = full_tool(**options)
    assert shown(replace(replace(made))) == shown(made)
    changed = replace(made, name="settle")
    assert shown(changed) | {"name": "lookup"} == shown(made)
    with raises(PromptValidationError, wording):
        replace(made, name="Not a name")


def test_a_field_of_the_effect_that_is_replaced_is_said_anew() -> None:
    """The others stay as they were said."""
    made = full_tool(effect=SAID)
    assert replace(made, effect=cast("Any", External())).external == External()
    assert replace(made, effect="external").external == SAID
    assert replace(made, idempotency=IdempotencyConfig()).external == SAID
    assert (replace(made, effect="state").external, replace(made, effect="state").reconcile) == (None, None)


def test_a_copy_of_a_template_keeps_the_type_of_its_answer() -> None:
    """It became `str` silently."""
    template = PromptTemplate[Found](ns="tests", key="copy", sections=[])
    assert replace(template, key="other").output_type is Found
    assert replace(PromptTemplate[None](ns="tests", key="copy", sections=[]), name="n").output_type is None
    assert replace(PromptTemplate(ns="tests", key="copy", sections=[]), name="n").output_type is str


def test_a_copy_of_a_section_keeps_its_parameters() -> None:
    """Of each kind; a template's placeholders are checked against them."""
    markdown = MarkdownSection[Lookup](title="Desk", template="Order ${entity_id}.")
    assert replace(markdown, template="The order is ${entity_id}.").params_type is Lookup
    with pytest.raises(PromptValidationError, match="colour"):
        replace(markdown, template="${colour}")
    tools = ToolsSection[Lookup](title="Desk", description="For ${entity_id}.", tools=[full_tool()])
    assert (replace(tools, title="Till").params_type, replace(tools, title="Till").tools) == (Lookup, tools.tools)
    assert replace(MarkdownSection(title="Plain", template="Text."), title="Other").params_type is None


S = TypeVar("S")


class GuidanceSection(MarkdownSection[Guidance]):
    """A section class that fixes the type."""


class DeeperSection(GuidanceSection):
    """One that inherits it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenSection(MarkdownSection[S], Generic[S]):
    """One that leaves it open."""


def test_a_subclass_inherits_the_types_of_its_base() -> None:
    """A class may fix the types of a base, at any distance, or leave them to its own brackets."""
    template = "Prefer ${tool}."
    for kind in (GuidanceSection, DeeperSection, OpenSection[Guidance]):
        assert kind(title="A", template=template).params_type is Guidance


def test_a_wrong_number_of_types_is_refused(wording: Wording) -> None:
    """Brackets with too many or too few types say what should stand there."""
    unchecked: Any = Tool
    with raises(PromptValidationError, wording):
        unchecked[Lookup]
    unchecked = PromptTemplate
    with raises(PromptValidationError, wording):
        unchecked[Lookup, Found]


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order": {"type": "string", "description": "The order."},
        "password": {"type": "string", "format": "password", "writeOnly": True},
    },
    "required": ["order"],
    "additionalProperties": False,
}


NO_ARGUMENTS: dict[str, Any] = {}
EMPTY = ToolExample(description="One", input=NO_ARGUMENTS, output=NO_ARGUMENTS)


def look_up_order(arguments: dict[str, Any], *, context: ToolContext) -> dict[str, Any]:
    """Look up."""
    return {"order": arguments["order"], "call": context.call_id}


def made(**changes: Any) -> Tool[dict[str, Any], Any]:
    """The tool, with other options."""
    options: dict[str, Any] = {"name": "lookUp", "description": "Looks up.", "schema": SCHEMA, "handler": look_up_order}
    return Tool.from_json_schema(**{**options, **changes})


def call(tool: Tool[Any, Any], *arguments: str) -> tuple[Session, list[ToolMessage]]:
    """The messages for calls of a tool in a new session, and the session."""
    session = Session()
    door = executor(tool, session=session, effect_ledger=EffectLedger())
    return session, [door.execute(ToolCall(str(at), tool.name, text)) for at, text in enumerate(arguments)]


def test_the_model_reads_the_schema_and_the_handler_gets_a_dict() -> None:
    """The schema as it was given."""
    tool = made()
    assert tool.parameters_schema == SCHEMA
    assert (tool.params_type, tool.result_type) == (dict, dict[str, Any])
    session, (message,) = call(tool, '{"order": "a"}')
    assert message.result.value == {"order": "a", "call": "0"}
    (event,) = session[ToolInvoked].all()
    assert event.params == {"order": "a"}


PET = {"$ref": "#/components/schemas/Pet"}
PET_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "pin": {"type": "string", "format": "password"},
        "young": {"type": "array", "items": PET},
    },
    "required": ["name"],
}
OF_OPENAPI: dict[str, Any] = {
    "type": "object",
    "properties": {"pet": PET, "default": {"anyOf": [PET, {"type": "null"}]}},
    "required": ["pet"],
    "components": {"schemas": {"Pet": PET_SCHEMA}, "parameters": {"limit": {"name": "limit", "in": "query"}}},
}


def test_the_components_of_an_openapi_document_are_definitions(wording: Wording) -> None:
    """Models and adapters look for them there; secrets in them are masked."""
    tool = made(schema=OF_OPENAPI)
    published = tool.parameters_schema
    assert "components" not in published
    assert published["properties"]["pet"] == {"$ref": "#/$defs/Pet"}
    assert published["$defs"]["Pet"]["properties"]["young"] == {"type": "array", "items": {"$ref": "#/$defs/Pet"}}
    right = {"pet": {"name": "a", "pin": "secret", "young": [{"name": "b"}]}}
    assert tool.parse(right) == right
    assert "secret" not in str(tool.masking.mask(right))
    with pytest.raises(ParseError) as raised:
        tool.parse({"pet": {"name": "a", "young": [{"name": 5}]}, "default": {}})
    assert [path for path, _ in raised.value.faults] == ["$.pet.young[0].name", "$.default.name"]
    both = {**OF_OPENAPI, "$defs": {"Other": {"type": "string"}}}
    assert sorted(made(schema=both).parameters_schema["$defs"]) == ["Other", "Pet"]
    with raises(PromptValidationError, wording):
        made(schema={**both, "$defs": {"Pet": {"type": "string"}}})


def test_arguments_that_do_not_fit_are_refused(wording: Wording) -> None:
    """All faults at once, and the first example."""
    tool = made(examples=[replace(EMPTY, input={"order": "a"})])
    _, (message,) = call(tool, '{"order": 5, "more": 1}')
    assert not message.success
    assert message.content == wording


def test_options_mean_what_they_mean_for_a_tool() -> None:
    """Two calls with equal arguments are one effect."""
    config = IdempotencyConfig(strategy="params", param_keys=("order",))
    ran: list[dict[str, Any]] = []

    def pay(arguments: dict[str, Any]) -> str:
        ran.append(arguments)
        return "paid"

    tool = made(effect="external", idempotency=config, handler=pay)
    session, messages = call(tool, '{"order": "a", "password": "p"}', '{"password": "p", "order": "a"}')
    assert [message.content for message in messages] == ["paid", "paid"]
    assert len(ran) == 1
    assert tool.masking.mask(ran[0]) == {"order": "a", "password": "**********"}
    assert [event.replayed for event in session[ToolInvoked].all()] == [False, True]


def of_two(arguments: dict[str, Any], other: int) -> None:
    """A handler that takes more."""


WRONG: list[dict[str, Any]] = [
    {"schema": {"type": "object", "properties": {"order": {"type": "text"}}}},
    {"schema": {"type": "string"}},
    {"handler": of_two},
    {"effect": "none"},
    {"examples": [EMPTY]},
    {"idempotency": IdempotencyConfig(strategy="params", param_keys=("more",))},
]


@pytest.mark.parametrize("changes", WRONG)
def test_a_wrong_declaration_is_refused(changes: dict[str, Any], wording: Wording) -> None:
    """When the tool is made."""
    with pytest.raises(PromptValidationError) as raised:
        made(**changes)
    faults = raised.value.faults if isinstance(raised.value, ToolSignatureError) else [raised.value]
    assert list(map(str, faults)) == wording
