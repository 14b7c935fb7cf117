"""`handrail.testing`: one call of one tool, the fake clock, and all names."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pytest

from handrail import testing
from handrail.errors import VisibilityExpansionRequired
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.resources import Binding, Resolver, ResourceRegistry
from handrail.runtime import IdempotencyConfig, Session, ToolInvoked
from handrail.testing import FakeClock, run_tool
from handrail.testing.scripted_model import ScriptedModel
from tests.kit import raises
from tests.wording import Wording


@dataclass(frozen=True)
class Refund:
    order: str
    on: date = date(2026, 1, 1)

    def render(self) -> str:
        return f"refunded {self.order}"


class Shop:
    """A resource that counts refunds, and knows whether it is open."""

    def __init__(self) -> None:
        self.refunds: list[str] = []
        self.closed = False

    def close(self) -> None:
        self.closed = True


def refund(params: Refund, *, context: ToolContext) -> ToolResult[Refund]:
    """Refund an order."""
    if params.order == "expand":
        raise VisibilityExpansionRequired("open the guide")
    context.resources.get(Shop).refunds.append(params.order)
    return ToolResult.ok(params)


def ping(params: None, *, context: ToolContext) -> ToolResult[None]:
    """Say that it is there."""
    return ToolResult.ok(None, message="pong")


REFUND = Tool[Refund, Refund](
    name="refund", description="Refund.", handler=refund, effect="external", idempotency=IdempotencyConfig()
)


PING = Tool[None, None](name="ping", description="Ping.", handler=ping)


@pytest.mark.parametrize(
    "params",
    [Refund("7"), {"order": "7"}, {"order": "7", "on": "2026-01-01"}, '{"order": "7"}', b'{"order": "7"}'],
    ids=["instance", "mapping", "with a date", "text", "bytes"],
)
def test_params_come_as_an_instance_a_mapping_or_text(params: object) -> None:
    """They go the whole way that a model's arguments go."""
    shop, session = Shop(), Session()
    assert run_tool(PING).content == "pong"  # needs neither params nor a session
    message = run_tool(REFUND, params, session=session, resources={Shop: shop})
    assert (message.content, message.success, message.call_id) == ("refunded 7", True, "call-1")
    assert message.result.value == Refund("7")
    assert shop.refunds == ["7"]
    assert session[Refund].latest() == Refund("7")
    assert [event.success for event in session[ToolInvoked].all()] == [True]


def test_wrong_params_are_answered_as_for_a_model() -> None:
    """So that a test can see what a model would read."""
    message = run_tool(REFUND, '{"order": 7}', resources={Shop: Shop()})
    assert not message.success
    assert "$.order" in message.content


def test_what_providers_make_is_closed_at_the_end() -> None:
    """A call of its own is a run of its own."""
    made: list[Shop] = []

    def provide(_: Resolver) -> Shop:
        made.append(Shop())
        return made[-1]

    run_tool(REFUND, Refund("7"), resources=ResourceRegistry.of(Binding(Shop, provide)))
    assert [shop.closed for shop in made] == [True]


def test_what_ends_a_run_is_raised() -> None:
    """There is no run around it that could end."""
    with pytest.raises(VisibilityExpansionRequired):
        run_tool(REFUND, Refund("expand"))


@pytest.mark.anyio
async def test_an_asynchronous_tool_runs_on_a_thread_of_a_test() -> None:
    """A test that is asynchronous itself does not wait on its event loop."""

    async def wave(params: None, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult.ok(None, message="hello")

    tool = Tool[None, None](name="wave", description="Wave.", handler=wave)
    assert (await asyncio.to_thread(run_tool, tool)).content == "hello"


def test_time_passes_only_when_told() -> None:
    """Both ways of telling the time stand still, and advance by the same span."""
    clock = FakeClock()
    moment, seconds = clock.now(), clock.monotonic()
    assert (clock.now(), clock.monotonic()) == (moment, seconds)
    clock.advance(timedelta(milliseconds=1500))
    assert (clock.now() - moment, clock.monotonic() - seconds) == (timedelta(seconds=1.5), 1.5)


def test_naive_start_is_refused_with_the_cure(wording: Wording) -> None:
    """A moment without a zone is no moment."""
    naive = datetime(2026, 3, 1, 9, tzinfo=UTC).replace(tzinfo=None)
    with raises(ValueError, wording):
        FakeClock(naive)


def test_clock_does_not_go_back(wording: Wording) -> None:
    """A refused step leaves the time unchanged."""
    clock = FakeClock()
    moment = clock.now()
    with raises(ValueError, wording):
        clock.advance(timedelta(seconds=-1))
    assert clock.now() == moment


def test_everything_that_is_named_is_there() -> None:
    """`ScriptedModel` is imported when it is asked for."""
    assert all(hasattr(testing, name) for name in testing.__all__)
    assert testing.ScriptedModel is ScriptedModel


def test_importing_the_fakes_loads_no_extra() -> None:
    """Pydantic is enough for all but the scripted model."""
    code = "import sys, handrail.testing; print({'pydantic_ai', 'ruamel.yaml'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8")
    assert done.stdout.strip() == "set()"
