"""Resources that were made and never entered: the end of the run closes them, or the log says that they are open."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult
from handrail.resources import Binding, Resolver, ResourceContext, ResourceRegistry, Scope
from handrail.runtime import Session, ToolCall
from tests.wording import Wording


class Client:
    """Has to be closed."""

    def __init__(self, context: object = None) -> None:
        self.context = context
        self.closed = 0

    def close(self) -> None:
        """Close it."""
        self.closed += 1


class Plain:
    """Has not."""


@pytest.fixture(autouse=True)
def _nothing_left_of_other_tests() -> None:
    """What earlier tests left open is collected before, so that no warning of theirs is seen here."""
    gc.collect()


def opened(*bindings: Binding[Any]) -> ResourceContext:
    """A context."""
    return ResourceRegistry.of(*bindings).open()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of resources, once all garbage is collected."""
    gc.collect()
    return [entry.getMessage() for entry in caplog.records if entry.name == "handrail.resources"]


def test_a_context_that_was_never_entered_warns_of_what_it_leaves_open(
    caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """It names the types, and what to write."""
    resources = opened(Binding(Client, lambda _: Client()), Binding(Plain, lambda _: Plain()))
    resources.get(Plain)
    client = resources.get(Client)
    del resources
    [warning] = warnings_of(caplog)
    assert warning == wording
    assert client.closed == 0


def test_a_resource_that_holds_its_context_does_not_keep_it(caplog: pytest.LogCaptureFixture) -> None:
    """A provider may hand on what it is given."""

    def provide(resolver: Resolver) -> Client:
        return Client(resolver)

    resources = opened(Binding(Client, provide))
    resources.get(Client)
    del resources
    assert len(warnings_of(caplog)) == 1


def test_nothing_is_said_where_nothing_is_left_open(caplog: pytest.LogCaptureFixture) -> None:
    """Entered before or after; given, not made; made for one call; or without a `close`."""
    before = opened(Binding(Client, lambda _: Client()))
    with before:
        before.get(Client)
    after = opened(Binding(Client, lambda _: Client()))
    after.get(Client)
    with after:
        pass
    given = opened(Binding.instance(Client, Client()))
    given.get(Client)
    of_call = opened(Binding(Client, lambda _: Client(), Scope.TOOL_CALL))
    with of_call.call_scope() as scope:
        scope.get(Client)
    plain = opened(Binding(Plain, lambda _: Plain()))
    plain.get(Plain)
    del before, after, given, of_call, plain, scope
    assert warnings_of(caplog) == []


def use(params: None, *, context: ToolContext) -> ToolResult[None]:
    """Use the client."""
    context.resources.get(Client)
    return ToolResult.ok(None)


USE = Tool[None, None](name="use", description="Uses it.", handler=use)


def prompt_of(client: Client) -> Prompt[str]:
    """A prompt whose provider makes that client."""
    template = PromptTemplate(ns="t", key="t", sections=[Section(title="Desk", tools=[USE])])
    return Prompt(template).bind(resources={Client: Binding(Client, lambda _: client)})


def test_an_executor_closes_at_the_end_of_its_block(caplog: pytest.LogCaptureFixture) -> None:
    """Once, however often it is entered."""
    client = Client()
    with ToolExecutor(prompt=prompt_of(client), session=Session()) as executor, executor:
        assert executor.execute(ToolCall("1", "use")).success
        assert client.closed == 0
    assert client.closed == 1
    assert warnings_of(caplog) == []


def test_a_process_that_ends_warns_too(wording: Wording) -> None:
    """A script that is at its end has not let go of its prompt."""
    script = (
        "from handrail.resources import Binding, ResourceRegistry\n"
        "class Client:\n    def close(self): ...\n"
        "resources = ResourceRegistry.of(Binding(Client, lambda _: Client())).open()\n"
        "resources.get(Client)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stderr == wording
