"""The tools of an MCP server as tools of Handrail: effects, keys, results."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import mcp_types as t
import pytest
from mcp import Client

import handrail.store
from handrail import undo
from handrail.adapters.mcp import AskTool, McpConnection, McpServer, McpToolsSection, ToolSettings, UndoneBy
from handrail.adapters.mcp.tools import parse_content, parse_result, tool_name
from handrail.adapters.mcp_hints import hinted_effect, make_hints, proves_nothing_done
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate
from handrail.prompt.signature import Effect
from handrail.runtime import ToolCall
from handrail.session import Session
from tests.adapters.mcp.bank_server import Bank
from tests.adapters.mcp.kit import ERAS, TRUSTED, bank_process, on_port, proxied, text, until
from tests.wording import Wording

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("effect", ["read", "state", "external"])
def test_hints_of_an_effect_are_read_as_the_same_effect(effect: Effect) -> None:
    """What a server of Handrail's declares, a proxy in front of it reads back."""
    assert hinted_effect(make_hints(effect)) == effect


def test_errors_prove_that_nothing_was_done_by_their_code_alone() -> None:
    """Except the status 404 of HTTP, which the SDK turns into the code of a missing method."""
    assert proves_nothing_done(-32602, "")
    assert proves_nothing_done(-32601, "Method not found")
    assert not proves_nothing_done(-32601, "Not Found")  # an HTTP status of 404
    assert not proves_nothing_done(-32603, "")
    assert not proves_nothing_done(True, "")


@pytest.mark.parametrize(
    "settings, effect",
    [
        ({}, ("external", "default")),
        ({"read": ("pay",)}, ("read", "settings")),
        ({"state": ("p*",)}, ("state", "settings")),
        ({"state": ("pay",), "external": ("*",)}, ("external", "settings")),
        ({"keys": {"pay": ("order",)}}, ("external", "settings")),
    ],
    ids=["nothing", "read", "state", "stricter", "key"],
)
def test_settings_decide_the_effect_before_hints_and_without_both_it_is_external(
    settings: dict[str, Any], effect: tuple[str, str]
) -> None:
    """Of two settings the stricter one counts, and a key implies an external effect."""
    assert ToolSettings(**settings).effect(t.Tool(name="pay", input_schema={})) == effect


def test_names_that_the_server_does_not_have_are_listed() -> None:
    """Globs that match nothing too."""
    ask = AskTool(tool="find", arguments={}, result="payment")
    settings = ToolSettings(read=("get_*", "bal*"), keys={"pey": ("order",)}, reconcile={"pay": ask})
    assert settings.unknown_names({"balance", "pay"}) == ["get_*", "pey", "find"]


def test_names_of_mcp_become_names_of_tools() -> None:
    """Providers take letters, digits, `_` and `-`, and 64 characters."""
    assert tool_name("a.b/c d") == "a_b_c_d"
    assert len(tool_name("x" * 100)) == 64


BLOCKS: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"type": "text", "text": "hello"}, "hello"),
    "link": ({"type": "resource_link", "name": "page", "uri": "https://a/b"}, "[page: https://a/b]"),
    "embedded text": ({"type": "resource", "resource": {"uri": "x:y", "text": "inner"}}, "inner"),
    "image": ({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}, "[image/png, 8 bytes]"),
    "blob": ({"type": "resource", "resource": {"uri": "x:y", "blob": "AAAA"}}, "[application/octet-stream, 3 bytes]"),
    "no media type": ({"type": "image", "data": "AAAA", "mimeType": "png"}, "[a file that cannot be read: png]"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_content_becomes_texts_and_parts(name: str) -> None:
    """Every kind of block that the protocol has."""
    block, expected = BLOCKS[name]
    texts, parts = parse_content([block])
    assert [*texts, *map(str, parts)] == [expected]


def test_result_of_the_server_that_failed_is_a_failed_result() -> None:
    """A failure without a text gets one."""
    result = parse_result("pay", {"content": [], "isError": True}, lambda _: None)
    assert (result.success, result.message) == (False, "pay failed")


def test_structured_content_without_text_is_shown_as_json() -> None:
    """The model reads it, and the value keeps its structure."""
    result = parse_result("look", {"content": [], "structuredContent": {"a": "é"}}, lambda _: None)
    assert (result.render(), result.value) == ('{"a": "é"}', {"a": "é"})


@pytest.mark.parametrize("mode", ERAS)
async def test_each_tool_of_a_server_answers_through_the_proxy(mode: str, tmp_path: Path, wording: Wording) -> None:
    """Results, errors, files, progress, and what the schema of a tool refuses, as a client reads them."""
    async with proxied(bank_process(tmp_path / "payments"), mode) as (client, _):
        lines: list[str] = []
        calls: list[tuple[str, dict[str, Any]]] = [
            ("balance", {}),
            ("pay", {"order": "a", "cents": 3}),
            ("pay", {"cents": 3}),
            ("wrong", {}),
            ("picture", {}),
        ]
        for name, arguments in [*calls, ("fail", {}), ("refuse", {}), ("ask", {}), ("a_b_c", {}), ("nothing", {})]:
            result = await client.call_tool(name, arguments)
            kinds = [block.type for block in result.content]
            lines.append(f"{name} {kinds} {'failed' if result.is_error else result.structured_content}: {text(result)}")
        assert "\n".join(lines) == wording


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_of_a_server_reaches_the_client_of_the_proxy(mode: str, tmp_path: Path) -> None:
    """While the call runs; it comes from the task that reads what the server sends, not from that of the call."""
    seen = asyncio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        assert (progress, total, message) == (1, 2, "half")
        seen.set()

    async with proxied(bank_process(tmp_path / "payments"), mode) as (client, _):
        call = asyncio.ensure_future(client.call_tool("wait", {}, progress_callback=hear))
        await seen.wait()
        call.cancel()
        await asyncio.wait((call,))


async def test_key_fields_make_two_calls_one_payment(tmp_path: Path) -> None:
    """The calls differ in an argument that is not part of the key."""
    bank = Bank(tmp_path / "payments")
    async with proxied(bank_process(bank.payments), settings=ToolSettings(keys={"pay": ("order",)})) as (client, _):
        for cents in (3, 4):
            assert not (await client.call_tool("pay", {"order": "a", "cents": cents})).is_error
    assert bank.paid() == [{"order": "a", "cents": 3}]


async def test_argument_of_a_key_is_required(tmp_path: Path, wording: Wording) -> None:
    """Also if the server does not require it."""
    settings = ToolSettings(keys={"die": ("order",)})
    async with proxied(bank_process(tmp_path / "payments"), settings=settings) as (client, _):
        result = await client.call_tool("die", {})
    assert (result.is_error, text(result)) == (True, wording)


@pytest.mark.parametrize("count, is_passed", [(10, True), (20_000, False)])
async def test_structured_content_without_a_schema_is_bounded(tmp_path: Path, count: int, is_passed: bool) -> None:
    """As the text of a result is."""
    async with proxied(bank_process(tmp_path / "payments")) as (client, _):
        result = await client.call_tool("amounts", {"count": count})
    assert (text(result), result.structured_content is not None) == ("many", is_passed)


async def test_key_is_forwarded_in_the_argument_that_the_model_does_not_see(tmp_path: Path) -> None:
    """The schema of the tool lacks that argument."""
    bank = Bank(tmp_path / "payments")
    settings = ToolSettings(keys={"pay": ("order",)}, forward_key={"pay": "key"})
    async with proxied(bank_process(bank.payments), settings=settings) as (client, _):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools["pay"].input_schema["properties"]) == {"order", "cents"}
        await client.call_tool("pay", {"order": "a"})
    assert bank.paid()[0]["key"].startswith("mcp/bank:pay:")


async def test_another_tool_says_that_a_lost_payment_has_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call succeeds with what the other tool found."""
    monkeypatch.setattr("handrail.adapters.mcp.connection._FIRST_PAUSE", 0.01)
    bank = Bank(tmp_path / "payments")
    ask = AskTool(tool="find", arguments={"order": "order"}, result="payment")
    settings = ToolSettings(reconcile={"die": ask}, untrusted=False)
    async with proxied(bank_process(bank.payments), settings=settings) as (client, _):
        result = await client.call_tool("die", {"order": "a"})
    assert (result.is_error, text(result)) == (False, '{"order":"a"}')
    assert len(bank.paid()) == 1


@pytest.mark.parametrize(
    "answer, payments",
    [
        (("find", True), 2),
        (("find", False), 1),
        (("fail", True), 1),
        (("learn", True), 1),
        (("environment", True), 1),
    ],
    ids=["no, which proves it", "no", "fails", "no JSON", "no object"],
)
async def test_lost_payment_is_made_again_only_after_a_no_that_is_declared_to_prove_it(
    answer: tuple[str, bool], payments: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Otherwise the request may still be on its way, or be carried out by a server that has outlived its proxy."""
    monkeypatch.setattr("handrail.adapters.mcp.connection._FIRST_PAUSE", 0.01)
    bank = Bank(tmp_path / "payments")
    (tool, proves), arguments = answer, {"order": "$key"}  # a key is no order of the bank
    arguments = arguments if tool == "find" else {}
    ask = AskTool(tool=tool, arguments=arguments, result="payment", proves_absence=proves)
    settings = ToolSettings(reconcile={"die": ask}, untrusted=False)
    async with proxied(bank_process(bank.payments), settings=settings) as (client, _):
        for number in (1, payments):
            result = await client.call_tool("die", {"order": "a"})
            assert (result.is_error, re.sub(r"mcp-\w+-", "mcp-", text(result))) == (True, wording)
            assert len(bank.paid()) == number


@pytest.mark.parametrize("order", ["a", "b"], ids=["after the effect", "before it"])
async def test_error_result_is_a_failure_unless_the_effect_has_happened(
    order: str, tmp_path: Path, wording: Wording
) -> None:
    """An exception in a server is an error result, whenever it was raised."""
    bank = Bank(tmp_path / "payments")
    ask = AskTool(tool="find", arguments={"order": "order"}, result="payment")
    settings = ToolSettings(reconcile={"boom": ask}, untrusted=False)
    async with proxied(bank_process(bank.payments), settings=settings) as (client, _):
        result = await client.call_tool("boom", {"order": order})
        assert f"{result.is_error}: {text(result)}" == wording


async def test_call_that_has_timed_out_is_not_made_again_while_its_server_may_carry_it_out(
    tmp_path: Path, wording: Wording
) -> None:
    """The tool that is asked does not have it yet."""
    bank = Bank(tmp_path / "payments")
    ask = AskTool(tool="find", arguments={"order": "order"}, result="payment")
    settings = ToolSettings(
        reconcile={"pay_late": ask}, keys={"pay_late": ("order",)}, timeout=timedelta(seconds=0.3), untrusted=False
    )
    async with proxied(bank_process(bank.payments), settings=settings) as (client, _):
        for _again in range(2):
            assert text(await client.call_tool("pay_late", {"order": "a"})) == wording
        await until(bank.paid)
        found = await client.call_tool("pay_late", {"order": "a"})
        assert (found.is_error, text(found)) == (False, '{"order":"a"}')
    assert len(bank.paid()) == 1


async def test_keys_hold_in_all_sessions_of_a_store(tmp_path: Path) -> None:
    """Two clients have proxies of their own, with sessions of their own."""
    bank = Bank(tmp_path / "payments")
    settings = ToolSettings(keys={"pay": ("order",)}, untrusted=False)
    with handrail.store.open(f"sqlite:///{tmp_path}/calls.db") as store:
        for name in ("one", "two"):
            with store.session(name) as session:
                async with proxied(bank_process(bank.payments), settings=settings, session=session) as (client, _):
                    assert text(await client.call_tool("pay", {"order": "a"})) == "paid a"
    assert len(bank.paid()) == 1


async def test_calls_of_a_server_are_undone_by_its_other_tools(tmp_path: Path) -> None:
    """With arguments of the call and of its result, and the key of the undo."""
    bank = Bank(tmp_path / "payments")
    settings = ToolSettings(
        undo={
            "pay": UndoneBy(tool="refund", arguments={"order": "$arguments.order"}),
            "refund": UndoneBy(tool="pay", arguments={"order": "$result.order"}),
            "boom": UndoneBy(tool="pay", arguments={"order": "$result.order"}),
        },
        forward_key={"refund": "key"},
        untrusted=False,
    )
    with handrail.store.open(f"sqlite:///{tmp_path}/calls.db") as store, store.session("one") as session:
        async with proxied(bank_process(bank.payments), settings=settings, session=session) as (client, proxy):
            await client.call_tool("pay", {"order": "a"})
            await client.call_tool("refund", {"order": "a"})
            await client.call_tool("pay", {"order": "b"})
            plan = undo.plan(session, executors=proxy.executor)
            assert [f"{step.tool}: {step.outcome}" for step in plan.steps] == [
                "pay: compensated",
                "refund: compensated",
                "pay: compensated",
            ]
            report = await undo.apply(plan)
    assert report.complete
    assert bank.paid() == []


async def test_call_without_what_its_undo_needs_cannot_be_undone(tmp_path: Path, wording: Wording) -> None:
    """The plan says so; the other tool is not called with arguments that are made up."""
    bank = Bank(tmp_path / "payments")
    settings = ToolSettings(
        undo={"pay": UndoneBy(tool="refund", arguments={"order": "$result.payment"})}, untrusted=False
    )
    with handrail.store.open(f"sqlite:///{tmp_path}/calls.db") as store, store.session("one") as session:
        async with proxied(bank_process(bank.payments), settings=settings, session=session) as (client, proxy):
            await client.call_tool("pay", {"order": "a"})
            (step,) = undo.plan(session, executors=proxy.executor).steps
    assert f"{step.outcome}: {step.why}" == wording
    assert len(bank.paid()) == 1


async def test_undo_whose_answer_is_lost_is_asked_about_by_its_key(tmp_path: Path) -> None:
    """By the tool that is asked about the other one, if the key is all that it takes."""
    bank = Bank(tmp_path / "payments")
    ask = AskTool(tool="find", arguments={"order": "$key"}, result="payment", proves_absence=True)
    settings = ToolSettings(
        undo={"pay": UndoneBy(tool="die", arguments={"order": "$arguments.order"})},
        reconcile={"die": ask},
        forward_key={"die": "key"},
        untrusted=False,
    )
    with handrail.store.open(f"sqlite:///{tmp_path}/calls.db") as store, store.session("one") as session:
        async with proxied(bank_process(bank.payments), settings=settings, session=session) as (client, proxy):
            await client.call_tool("pay", {"order": "a"})
            report = await undo.apply(undo.plan(session, executors=proxy.executor))
            assert report.failed is not None
            (step,) = (undo.plan(session, executors=proxy.executor)).steps
    assert step.outcome == "compensated"


ASK = AskTool(tool="find", arguments={"order": "order"}, result="payment")
VOID: dict[str, dict[str, Any]] = {
    "an argument that the call has not": {"reconcile": {"pay": dataclasses.replace(ASK, arguments={"order": "ordr"})}},
    "an argument that the other tool has not": {
        "reconcile": {"pay": dataclasses.replace(ASK, arguments={"o": "$key"})}
    },
    "a tool that is not there": {"reconcile": {"pay": dataclasses.replace(ASK, tool="nowhere")}},
    "a tool that acts": {"reconcile": {"pay": dataclasses.replace(ASK, tool="boom")}},
    "a key of what is not there": {"keys": {"pay": ("ordr",)}},
    "a key in what is not there": {"forward_key": {"pay": "kex"}},
    "a key of a tool that only reads": {"keys": {"pay": ("order",)}, "read": ("pay",)},
    "an undo by nothing": {"undo": {"pay": UndoneBy(tool="nowhere", arguments={})}},
    "an undo that reads": {"undo": {"pay": UndoneBy(tool="find", arguments={"order": "$arguments.order"})}},
    "an undo of what is not there": {"undo": {"pay": UndoneBy(tool="refund", arguments={"order": "$arguments.x"})}},
    "an undo with a constant": {"undo": {"pay": UndoneBy(tool="refund", arguments={"order": "a"})}},
    "an undo that gives too much": {
        "undo": {"pay": UndoneBy(tool="refund", arguments={"order": "$result.a", "o": "$result.a"})}
    },
    "an undo that gives too little": {"undo": {"pay": UndoneBy(tool="refund", arguments={})}},
}


@pytest.mark.short(len(VOID))
@pytest.mark.parametrize("name", VOID)
async def test_tool_whose_declaration_is_void_is_not_offered(name: str, tmp_path: Path, wording: Wording) -> None:
    """It was to be protected by that."""
    settings = ToolSettings(**VOID[name])
    async with proxied(bank_process(tmp_path / "payments"), settings=settings) as (client, proxy):
        assert "pay" not in [tool.name for tool in (await client.list_tools()).tools]
        assert proxy.sections[0].faults == (wording,)


async def test_answer_without_the_field_that_is_declared_says_nothing(tmp_path: Path) -> None:
    """A misspelt field would else prove that nothing has happened."""
    bank = Bank(tmp_path / "payments")
    ask = dataclasses.replace(ASK, result="paymnt", proves_absence=True)
    settings = ToolSettings(reconcile={"boom": ask}, keys={"boom": ("order",)}, untrusted=False)
    async with proxied(bank_process(bank.payments), settings=settings) as (client, _):
        for _again in range(2):
            assert (await client.call_tool("boom", {"order": "a"})).is_error
    assert len(bank.paid()) == 1


async def test_keys_are_those_of_a_server(tmp_path: Path) -> None:
    """Two servers with tools of one name pay one order each; another prefix is no way to pay it again."""
    with handrail.store.open(f"sqlite:///{tmp_path}/calls.db") as store:
        for number, (name, prefix, paid) in enumerate([("visa", "", 1), ("paypal", "", 1), ("visa", "v_", 1)]):
            bank = Bank(tmp_path / name)
            server = dataclasses.replace(bank_process(bank.payments), name=name)
            settings = ToolSettings(keys={"pay": ("order",)}, prefix=prefix, untrusted=False)
            with store.session(f"s{number}") as session:
                async with proxied(server, settings=settings, session=session) as (client, _):
                    await client.call_tool(f"{prefix}pay", {"order": "a"})
            assert len(bank.paid()) == paid


async def test_lost_call_was_carried_out_also_if_what_is_known_of_it_does_not_fit_its_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """As with an answer that does not fit: the client must not repeat it."""
    monkeypatch.setattr("handrail.adapters.mcp.connection._FIRST_PAUSE", 0.01)
    ask = AskTool(tool="balance", arguments={}, result="cents")
    settings = ToolSettings(reconcile={"die_wrong": ask}, untrusted=False)
    async with proxied(bank_process(tmp_path / "payments"), settings=settings) as (client, _):
        assert text(await client.call_tool("die_wrong", {})) == wording


async def test_tool_that_cannot_be_offered_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Of two with one name the first stays; a schema of results that is none is not checked."""
    schemas: list[dict[str, Any]] = [{"type": "object", "properties": {"a": {"type": "strange"}}}, {"type": "object"}]
    tools = [t.Tool(name=name, input_schema=schemas[name != "odd"]) for name in ("a.b", "a_b", "odd")]
    bank = Bank(tmp_path / "payments", [*tools, t.Tool(name="c", input_schema=schemas[1], output_schema=schemas[0])])
    async with (
        on_port(bank.server.streamable_http_app()) as url,
        proxied(McpServer(name="bank", url=url), settings=TRUSTED) as (client, _),
    ):
        assert [tool.name for tool in (await client.list_tools()).tools] == ["a_b", "c"]
        assert text(await client.call_tool("c", {})).startswith("c\n")
    assert [record.getMessage() for record in caplog.records if record.name == "handrail.mcp"] == wording


async def test_payment_whose_answer_was_lost_is_not_made_again(tmp_path: Path, wording: Wording) -> None:
    """Its outcome is unknown, and stays so for an equal call."""
    bank = Bank(tmp_path / "payments")
    async with proxied(bank_process(bank.payments)) as (client, _):
        for _again in range(2):
            result = await client.call_tool("die", {"order": "a"})
            assert (result.is_error, re.sub(r"mcp-\w+-", "mcp-", text(result))) == (True, wording)
    assert len(bank.paid()) == 1


async def test_read_whose_answer_was_lost_fails_and_may_be_repeated(tmp_path: Path, wording: Wording) -> None:
    """A read has no effect that could be doubled."""
    async with proxied(bank_process(tmp_path / "payments")) as (client, _):
        assert text(await client.call_tool("die_reading", {})) == wording
        assert text(await client.call_tool("balance", {})) == '{"cents": 5}'


def test_section_has_the_tools_of_a_server_and_follows_it(tmp_path: Path) -> None:
    """A tool that the server learns is a tool of the running executor."""
    with McpToolsSection(bank_process(tmp_path / "payments"), title="Bank", description="Pays.") as section:
        prompt = Prompt(PromptTemplate[str](ns="tests", key="bank", sections=[section]))
        executor = ToolExecutor(prompt=prompt, session=Session())
        assert "Pays." in executor.text
        assert "taught" not in [tool.name for tool in executor.tools]
        assert executor.execute(ToolCall("1", "learn", {})).success
        asyncio.run(until(lambda: "taught" in [tool.name for tool in executor.tools]))
        assert executor.execute(ToolCall("2", "taught", {})).success


def test_results_of_a_section_are_bounded_and_marked(tmp_path: Path) -> None:
    """By default; the settings can say otherwise."""
    settings = ToolSettings(max_result_chars=1_000)
    with McpToolsSection(bank_process(tmp_path / "payments"), settings=settings) as section:
        assert all(tool.untrusted and tool.max_result_chars == 1_000 for tool in section.tools)
        message = ToolExecutor(section.tools, session=Session()).execute(ToolCall("1", "balance", {}))
        assert message.is_untrusted


async def test_server_cannot_offer_a_tool_in_the_place_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Two servers learn a tool of one name; the prompt keeps the tools that it had."""
    async with McpConnection(bank_process(tmp_path / "a")) as one, McpConnection(bank_process(tmp_path / "b")) as two:
        first = McpToolsSection(one, title="One")
        second = McpToolsSection(two, title="Two", settings=ToolSettings(only=("taught",)))
        prompt = Prompt(PromptTemplate[str](ns="tests", key="banks", sections=[first, second]))
        executor = ToolExecutor(prompt=prompt, session=Session())
        before = [tool.name for tool in executor.tools]
        for connection in (one, two):
            await connection.call("learn", {})
        await until(lambda: first.tools[-1].name == "taught" and second.tools)
        assert [tool.name for tool in executor.tools] == before
        assert caplog.messages[0] == wording


async def test_client_hears_that_the_tools_of_the_proxy_have_changed(tmp_path: Path) -> None:
    """A client of an older version, by a notification."""
    changed = asyncio.Event()

    async def hear(message: object) -> None:
        if isinstance(message, t.ToolListChangedNotification):
            changed.set()

    async with proxied(bank_process(tmp_path / "payments"), "legacy", message_handler=hear) as (client, _):
        await client.list_tools()
        await client.call_tool("learn", {})
        await changed.wait()
        assert (await client.list_tools()).tools[-1].name == "taught"


async def test_sdk_client_reads_the_hints_of_what_is_declared(tmp_path: Path) -> None:
    """The proxy shows the declared effect in place of the server's hint."""
    async with proxied(bank_process(tmp_path / "payments"), settings=ToolSettings(read=("pay",))) as (client, _):
        assert isinstance(client, Client)
        tools = {tool.name: tool.annotations or t.ToolAnnotations() for tool in (await client.list_tools()).tools}
    assert tools["pay"].read_only_hint is True
    assert tools["die"].destructive_hint is True
