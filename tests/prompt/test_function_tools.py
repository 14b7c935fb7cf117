"""A decorated function is a tool: what the model reads of it, what a call passes, and what it returns."""

from __future__ import annotations

import asyncio
import re
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from datetime import timedelta
from functools import wraps
from typing import Annotated, Any, Generic, TypeVar, cast, get_origin

import pytest
from pydantic import BaseModel, Field
from typing_extensions import Doc

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PromptValidationError, SchemaError, UnboundResourceError
from handrail.prompt import (
    BinaryPart,
    FunctionTool,
    IdempotencyConfig,
    Prompt,
    PromptTemplate,
    TextPart,
    Tool,
    ToolExample,
    ToolResult,
    ToolsSection,
    tool,
)
from handrail.prompt.function_tools import FunctionOptions
from handrail.prompt.tool_definition import ToolOptions
from handrail.resources import Resource
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.serde import codec
from tests.kit import executor, raises
from tests.prompt.function_tools import functions
from tests.prompt.function_tools.functions import Client, Config, Item, Receipt, Shop
from tests.wording import Wording

RESOURCES: dict[type[Any], object] = {Client: Client(), Config: Config("north")}


V = TypeVar("V")


def call(one: Tool[Any, Any], arguments: str = "{}", resources: dict[type[Any], object] | None = None) -> ToolMessage:
    """The message for a call of a tool."""
    door = executor(one, resources=RESOURCES if resources is None else resources)
    return door.execute(ToolCall("call-1", one.name, arguments))


def value_of(one: Tool[Any, Any], arguments: str = "{}") -> object:
    """The value of the result of a call that succeeds."""
    message = call(one, arguments)
    assert message.success, message.content
    return message.result.value


def test_the_signature_and_the_docstring_are_the_declaration() -> None:
    """Name, descriptions, types, constraints and defaults."""
    charge = functions.charge
    assert (charge.name, charge.effect, charge.result_type) == ("charge", "external", Receipt)
    assert charge.description == "Charge the card of an order.\n\nA second paragraph."
    assert charge.parameters_schema == {
        "type": "object",
        "properties": {
            "order": {"type": "string", "description": "number of the order."},
            "cents": {"type": "integer", "exclusiveMinimum": 0, "default": 100, "description": "amount."},
        },
        "required": ["order"],
        "additionalProperties": False,
    }


def test_a_plain_value_is_a_success() -> None:
    """With the default of a parameter that is left out."""
    message = call(functions.charge, '{"order": "A-1"}')
    assert message.result == ToolResult("", Receipt("A-1", 100))
    assert message.content == '{"order":"A-1","cents":100}'


def test_a_function_without_arguments_and_result_is_a_tool() -> None:
    """`None` is a success without a value, which the model reads as OK; its name describes it, if nothing else does."""

    @tool
    def find_order() -> None: ...

    nothing = functions.without_arguments
    assert (nothing.name, nothing.description) == ("nothing", "Does nothing.")
    assert (nothing.params_type, nothing.result_type) == (None, None)
    message = call(nothing)
    assert (message.success, message.content, find_order.description) == (True, "OK", "find order")


def test_context_and_resources_are_injected_wherever_they_stand() -> None:
    """By type or by mark; what is not bound and may be missing is its default."""
    assert list(functions.injected.parameters_schema["properties"]) == ["word"]
    expected = ["client", "call-1", "north", "w", "True", "default"]
    assert value_of(functions.injected, '{"word": "w"}') == expected


def test_a_parameter_that_may_be_none_is_none_where_nothing_is_bound() -> None:
    """The one with a default has its default."""

    @tool
    def look(client: Client | None, other: Client = Client("own")) -> list[str]:  # noqa: B008 - it is the case
        return [str(client), other.name]

    assert call(look, resources={}).result.value == ["None", "own"]


def test_a_class_with_arguments_is_a_resource_if_it_cannot_be_read() -> None:
    """It is bound for the class; one that can be read is data, as without arguments."""

    class Cache(Generic[V]):
        """A class that is not data."""

    @dataclass(frozen=True)
    class Page(Generic[V]):
        items: list[V]

    @tool
    def look(page: Page[int], cache: Cache[str], other: Cache[int] | None) -> tuple[int, bool]:
        return len(page.items), other is not None

    @tool
    def count(page: Annotated[Page[str], Resource]) -> int:
        return len(page.items)

    resources: dict[type[Any], object] = {Cache: Cache[str](), Page: Page(["a"])}
    assert call(look, '{"page": {"items": [1, 2]}}', {Cache: Cache[str]()}).result.value == (2, True)
    assert call(count, resources=resources).result.value == 1
    with pytest.raises(PromptValidationError) as caught:
        call(look, resources=resources)
    assert (caught.value.tool, caught.value.dataclass) == ("look", Page)


def test_resources_that_nothing_binds_are_reported_before_the_first_call(wording: Wording) -> None:
    """Each with the reason why it is one: the type was perhaps meant to be data.

    Also those of a closed section, which the model may open at any time; one that is disabled needs nothing.
    """

    def made(**options: Any) -> ToolExecutor:
        section = ToolsSection(title="Tools", tools=[functions.injected], **options)
        prompt = Prompt(PromptTemplate(ns="tests", key="tools", sections=[section]))
        return ToolExecutor(prompt=prompt, session=Session())

    with pytest.raises(UnboundResourceError) as caught:
        made()
    assert [note.partition(" (")[0] for note in caught.value.__notes__] == [wording, wording]
    with pytest.raises(UnboundResourceError) as caught:
        made(summary="More.")
    assert caught.value.protocol is Client
    assert made(enabled=False).tools == ()


PICTURE = BinaryPart(b"picture", "image/png")


@tool
def draw() -> BinaryPart:
    """Draw."""
    return PICTURE


@tool
async def draw_both() -> list[str | BinaryPart]:
    """Draw with a text between."""
    return ["both", PICTURE, "and", BinaryPart(b"other", "image/png")]


@tool
def draw_perhaps(draws: bool) -> tuple[BinaryPart, ...] | str | None:
    """Draw, or say why not."""
    return (PICTURE,) if draws else "no pencil"


@tool
def draw_anything() -> Any:
    """Draw."""
    return [PICTURE]


RETURNED: list[tuple[Tool[Any, Any], str, ToolResult[Any]]] = [
    (draw, "{}", ToolResult("", None, parts=(PICTURE,))),
    (draw_both, "{}", ToolResult("both", None, parts=(PICTURE, TextPart("and"), BinaryPart(b"other", "image/png")))),
    (draw_perhaps, '{"draws": true}', ToolResult("", None, parts=(PICTURE,))),
    (draw_perhaps, '{"draws": false}', ToolResult("", "no pencil")),
    (draw_anything, "{}", ToolResult("", None, parts=(PICTURE,))),
]


@pytest.mark.parametrize("one, arguments, expected", RETURNED)
def test_a_function_may_return_files(one: Tool[Any, Any], arguments: str, expected: ToolResult[Any]) -> None:
    """They are parts of the result, and not its value."""
    message = call(one, arguments)
    assert (message.success, message.result) == (True, expected)
    assert message.parts == expected.all_parts()


def test_files_have_no_type_of_a_value() -> None:
    """A list that holds more than files and text is a value."""

    @tool
    def listed() -> list[int | BinaryPart]:
        return [1, PICTURE]

    assert (draw.result_type, draw_both.result_type, draw_perhaps.result_type) == (None, None, str | None)
    assert call(listed).result.value == [1, PICTURE]


def test_what_is_not_annotated_may_return_any_json() -> None:
    """Or an awaitable of it."""
    unannotated: Tool[Any, Any] = functions.unannotated
    assert value_of(unannotated, '{"word": "w"}') == {"word": "w"}
    assert (unannotated.result_type,) == (Any,)
    assert value_of(functions.awaitable, '{"word": "w"}') == "w"


def test_calling_a_tool_calls_the_function() -> None:
    """Nothing is validated, injected or recorded."""
    assert functions.charge("A-1", cents=-5) == Receipt("A-1", -5)
    assert asyncio.run(functions.later(Item(sku="a"))) == Item(sku="nowhere")


def test_every_option_of_a_tool_is_one_of_the_decorator() -> None:
    """Also those that are added later."""
    of_tool = {each.name for each in fields(Tool) if each.init and not each.name.startswith("given_")}
    assert set(ToolOptions.__annotations__) == of_tool - {"name", "description", "handler"}
    assert set(FunctionOptions.__annotations__) == of_tool - {"handler"}


WRONG: list[dict[str, Any]] = [
    *({"effect": "none"}, {"name": "a b"}, {"description": "   "}),
    {"idempotency": IdempotencyConfig(strategy="params", param_keys=("client",))},
    {"effect": "read", "idempotency": IdempotencyConfig()},
    {"examples": [ToolExample(description="One", input={"order": 5}, output=Receipt("a", 1))]},
]


@pytest.mark.parametrize("options", WRONG)
def test_options_have_the_checks_of_a_tool(options: dict[str, Any], wording: Wording) -> None:
    """They are the same."""
    with raises(PromptValidationError, wording):
        tool(**options)(functions.charge.function)


def test_the_input_of_an_example_may_be_a_dict() -> None:
    """As a model writes it; or the arguments themselves."""
    example = ToolExample(description="One", input={"order": "a"}, output=Receipt("a", 1))
    made = tool(examples=[example])(functions.charge.function)
    (read,) = made.examples
    assert (read.input.order, read.input.cents) == ("a", 100)
    (again,) = replace(made).examples
    assert again.input == read.input
    assert tool(examples=())(functions.without_arguments.function).examples == ()


def test_a_copy_is_a_tool_of_the_same_function() -> None:
    """With another name, for example."""
    copied = replace(functions.charge, name="pay", timeout=timedelta(seconds=1))
    assert isinstance(copied, FunctionTool)
    assert get_origin(FunctionTool[..., Any, Receipt]) is FunctionTool
    assert (copied.result_type, copied.effect, copied("a").cents) == (Receipt, "external", 100)
    assert value_of(copied, '{"order": "a"}') == Receipt("a", 100)


# ------------------------------------------------------------------------------------------------------------- methods


def test_a_method_is_a_tool_of_its_object() -> None:
    """Each object has its own."""
    one, other = Shop("one"), Shop("other")
    greet = tool(one.greet)
    assert value_of(greet, '{"who": "me"}') == "one greets me"
    assert value_of(tool(effect="read")(other.greet_later), '{"who": "me"}') == "other greets me in call-1"
    assert (greet("you"), greet.name) == ("one greets you", "greet")


def test_a_function_is_not_a_tool(wording: Wording) -> None:
    """A section says what is missing; a decorator around a tool hides it."""
    unchecked: Any = functions.plain

    @wraps(functions.charge)
    def hidden(order: str) -> Receipt:
        raise NotImplementedError

    for item in (unchecked, cast("Any", hidden)):
        with pytest.raises(PromptValidationError) as raised:
            ToolsSection(title="Tools", tools=[item])
        assert re.sub(" at 0x[0-9a-f]+", "", str(raised.value)) == wording


# ------------------------------------------------------------------------------------------------------- the arguments


def test_the_arguments_are_values() -> None:
    """Immutable, and compared by their fields."""
    kind: Any = functions.charge.params_type
    one = kind(order="a")
    assert one == kind(order="a", cents=100) != kind(order="b")
    assert hash(one) == hash(replace(one))
    with pytest.raises(FrozenInstanceError):
        one.order = "b"


def test_text_beside_a_type_describes_the_parameter() -> None:
    """Plain, or in a `Doc`; it counts before the docstring, and a `Field` with a description before it."""

    @tool
    def ship(  # noqa: D417 - the others are described beside their types
        to: Annotated[str, " the town "],
        by: Annotated[str | None, Doc("the carrier")] = None,
        price: Annotated[int, "no text", Field(gt=0, description="in cents")] = 5,
        weight: Annotated[int, ""] = 1,
    ) -> None:
        """Ship.

        Args:
            to: where to.
            weight: in grams.
        """
        raise NotImplementedError

    properties = ship.parameters_schema["properties"]
    described = {name: schema["description"] for name, schema in properties.items()}
    assert described == {"to": "the town", "by": "the carrier", "price": "in cents", "weight": "in grams."}


@dataclass(eq=False)
class Options:
    """Has the hash of its identity."""

    words: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Holder:
    """Has a hash, and holds what can be changed."""

    options: Options


OPTIONS, SEVERAL, HOLDER = Options(), (Options(),), Holder(Options())


def test_a_default_with_the_hash_of_its_identity_is_not_shared() -> None:
    """By itself, in a tuple and in a frozen dataclass."""

    @tool
    def mark(
        word: str, one: Options = OPTIONS, several: tuple[Options, ...] = SEVERAL, holder: Holder = HOLDER
    ) -> list[str]:
        every = [one, *several, holder.options]
        for each in every:
            each.words.append(word)
        return [text for each in every for text in each.words]

    for word in ("a", "b"):
        params = mark.parse({"word": word})
        assert mark.handler is not None
        result: Any = mark.handler(params, context=cast("Any", None))
        assert result.value == [word] * 3


def test_a_default_of_a_field_that_all_values_would_share_is_refused(wording: Wording) -> None:
    """Of a dataclass and of a model; pydantic copies what has no hash."""

    @dataclass
    class Form:
        one: Holder = HOLDER

    class Model(BaseModel):
        lists: tuple[list[Options], ...] = ([OPTIONS],)
        several: tuple[Options, ...] = SEVERAL

    for kind in (Form, Model):
        with raises(SchemaError, wording):
            codec(kind)
