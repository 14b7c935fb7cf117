"""The resources as one tool call sees them."""

from __future__ import annotations

import threading

import pytest

from handrail.errors import ResourceError, UnboundResourceError
from handrail.resources import Binding, ResourceContext, Scope
from tests.kit import raises
from tests.resources.kit import Cache, Client, Config, Tracer, opened
from tests.wording import Wording


def resources_of(closed: list[str]) -> ResourceContext:
    """A tracer for each call that needs a cache for all and a new client."""
    return opened(
        Binding(
            Tracer, lambda r: Tracer(r.get(Cache).url + r.get(Client).url, closed, "tracer"), scope=Scope.TOOL_CALL
        ),
        Binding(Client, lambda _: Client("new", closed), scope=Scope.PROTOTYPE),
        Binding(Cache, lambda _: Cache("shared", closed, "cache")),
    )


def test_call_has_its_own_and_shares_the_singletons() -> None:
    """One for each call, and the same for all."""
    resources = resources_of([])
    with resources.call_scope() as call, resources.call_scope() as other:
        assert call.get(Tracer) is call.get(Tracer)
        assert call.get(Tracer) is not other.get(Tracer)
        assert call.get(Cache) is other.get(Cache) is resources.get(Cache)
        assert call.get(Client) is not call.get(Client)


def test_call_closes_its_own_in_reverse_order() -> None:
    """With the call end what was built for it, the newest first; the singletons stay."""
    closed: list[str] = []
    with resources_of(closed) as resources:
        with resources.call_scope() as call:
            call.get(Tracer)
            call.get(Client)
        assert closed == ["client", "tracer", "client"]
    assert closed == ["client", "tracer", "client", "cache"]


def test_call_that_has_ended_gets_nothing_of_its_own_any_more(wording: Wording) -> None:
    """It would never be closed, or is closed already; what all calls share is still there."""
    resources = resources_of([])
    used, unused = resources.call_scope(), resources.call_scope()
    used.get(Tracer)
    for call in (used, unused):
        call.close()
        for kind in (Tracer, Client):
            with raises(ResourceError, wording):
                call.get(kind)
        assert call.get(Cache).url == "shared"


def test_resource_that_is_built_while_its_call_ends_is_closed(wording: Wording) -> None:
    """The end of a call does not wait for a late handler, and what that still builds is not left open."""
    closed, building, ended = list[str](), threading.Event(), threading.Event()

    def provide_slowly(_resolver: object) -> Tracer:
        building.set()
        ended.wait()
        return Tracer("", closed, "late")

    call = opened(Binding(Tracer, provide_slowly, scope=Scope.TOOL_CALL)).call_scope()
    refused: list[ResourceError] = []

    def ask_late() -> None:
        with raises(ResourceError, wording) as caught:
            call.get(Tracer)
        refused.append(caught.value)

    thread = threading.Thread(target=ask_late)
    thread.start()
    building.wait()
    call.close()
    ended.set()
    thread.join()
    assert len(refused) == 1
    assert closed == ["late"]


def test_slow_provider_of_one_call_keeps_no_other_call_waiting() -> None:
    """Calls build under locks of their own: a handler that hangs in a provider hangs alone."""
    first_builds, second_has_built = threading.Event(), threading.Event()

    def provide(_resolver: object) -> Tracer:
        if not first_builds.is_set():
            first_builds.set()
            second_has_built.wait()
        return Tracer()

    resources = opened(Binding(Tracer, provide, scope=Scope.TOOL_CALL))
    first = resources.call_scope()
    thread = threading.Thread(target=lambda: first.get(Tracer))
    thread.start()
    first_builds.wait()
    second = resources.call_scope().get(Tracer)
    second_has_built.set()
    thread.join()
    assert first.get(Tracer) is not second


def test_missing_dependency_is_told_with_who_needs_it() -> None:
    """The chain starts with what the handler asked for."""
    resources = opened(Binding(Tracer, lambda r: Tracer(r.get(Config).url), scope=Scope.TOOL_CALL))
    with resources.call_scope() as call, pytest.raises(UnboundResourceError) as caught:
        call.get(Tracer)
    assert (caught.value.protocol, caught.value.needed_by) == (Config, (Tracer,))
