"""What is closed, when, and in which order: with the context, and with a call."""

from __future__ import annotations

import pytest

from handrail.errors import ProviderError, ResourceError
from handrail.resources import Binding, ResourceContext, ResourceRegistry, Scope
from tests.resources.things import Cache, Client, Config, Tracer
from tests.wording import Wording


@pytest.fixture
def closed() -> list[str]:
    """What was closed, in order."""
    return []


def registry_of(closed: list[str], scope: Scope = Scope.SINGLETON) -> ResourceRegistry:
    """A tracer that needs a client that needs a cache; all tell when they are closed."""
    return ResourceRegistry.of(
        Binding(Tracer, lambda r: Tracer(r.get(Client).url, closed, "tracer"), scope=scope),
        Binding(Client, lambda r: Client(r.get(Cache).url, closed, "client"), scope=scope),
        Binding(Cache, lambda _: Cache("here", closed, "cache"), scope=scope),
    )


def test_what_was_built_is_closed_in_reverse_order(closed: list[str]) -> None:
    """Nothing is closed before those that depend on it."""
    with registry_of(closed).open() as resources:
        resources.get(Tracer)
        assert closed == []
    assert closed == ["tracer", "client", "cache"]


def test_last_to_leave_closes(closed: list[str]) -> None:
    """The context may be entered while it is entered."""
    resources = registry_of(closed).open()
    with resources:
        with resources:
            resources.get(Cache)
        assert closed == []
    assert closed == ["cache"]


def test_context_may_be_entered_again(closed: list[str]) -> None:
    """What was closed is built anew, and what was given is still there."""
    given = Config("given")
    resources = registry_of(closed).merge(ResourceRegistry.build({Config: given})).open()
    with resources:
        first = resources.get(Cache)
    with resources:
        assert resources.get(Cache) is not first
        assert resources.get(Config) is given
    assert closed == ["cache", "cache"]


def test_given_instance_stays_open(closed: list[str]) -> None:
    """Whoever made it closes it, also where a provider passes it on under another type."""
    client = Tracer("", closed)
    registry = ResourceRegistry.of(
        Binding.instance(Tracer, client),
        Binding(Client, lambda r: r.get(Tracer)),
        Binding(Cache, lambda _: Cache("", closed, "cache")),
    )
    with registry.open() as resources:
        assert resources.get(Client) is client
        resources.get(Cache)
    assert closed == ["cache"]


def test_resource_bound_for_two_types_is_closed_once(closed: list[str]) -> None:
    """It was built once, by whichever binding made it; a call does not close what belongs to the context."""
    registry = ResourceRegistry.of(
        Binding(Tracer, lambda _: Tracer("", closed, "tracer")),
        Binding(Client, lambda r: r.get(Tracer)),
        Binding(Cache, lambda r: Cache(r.get(Tracer).url, closed, "cache"), scope=Scope.TOOL_CALL),
        Binding(object, lambda r: r.get(Tracer), scope=Scope.TOOL_CALL),
    )
    with registry.open() as resources:
        with resources.call_scope() as call:
            assert call.get(object) is call.get(Client)
            call.get(Cache)
        assert closed == ["cache"]
    assert closed == ["cache", "tracer"]


class Stubborn(Client):
    """A resource that cannot be closed."""

    error: BaseException = OSError("busy")

    def close(self) -> None:
        super().close()
        raise self.error


class Impatient(Stubborn):
    error = KeyboardInterrupt()


class Asynchronous:
    async def close(self) -> None:
        """Nobody awaits it."""


def stubborn_registry(closed: list[str], kind: type[Stubborn] = Stubborn) -> ResourceRegistry:
    """A registry whose middle one, or both of whose last ones, cannot be closed."""
    return ResourceRegistry.of(
        Binding(Cache, lambda _: Cache("", closed, "cache"), eager=True),
        Binding(Stubborn, lambda _: kind("", closed, "stubborn"), eager=True),
        Binding(Client, lambda _: Client("", closed, "client"), eager=True),
    )


def test_all_that_cannot_be_closed_are_told(closed: list[str], wording: Wording) -> None:
    """The message names each, and the cause holds them all."""
    registry = stubborn_registry(closed).merge(
        ResourceRegistry.of(Binding(Asynchronous, lambda _: Asynchronous(), eager=True))
    )
    with (
        pytest.raises(ResourceError) as caught,
        registry.open(),
    ):
        pass
    assert str(caught.value) == wording
    assert str(caught.value.__cause__) == wording
    assert closed == ["client", "stubborn", "cache"]


def test_failure_of_closing_does_not_hide_what_was_raised(closed: list[str], wording: Wording) -> None:
    """The first exception goes on, with a note; so a cancelled call stays cancelled."""
    with pytest.raises(ZeroDivisionError) as caught, stubborn_registry(closed).open():
        raise ZeroDivisionError
    assert caught.value.__notes__[0] == wording


def test_interrupt_while_closing_is_raised_when_all_are_closed(closed: list[str], wording: Wording) -> None:
    """Ctrl-C is neither lost nor does it leave anything open."""
    with pytest.raises(KeyboardInterrupt) as caught, stubborn_registry(closed, Impatient).open():
        pass
    assert closed == ["client", "stubborn", "cache"]
    assert caught.value.__notes__[0] == wording


def test_failed_entering_closes_what_it_had_built(closed: list[str], wording: Wording) -> None:
    """Nothing is entered: the next one to enter starts from the beginning."""
    attempts: list[int] = []

    def fail_at_first(_resolver: object) -> Config:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("not yet")
        return Config()

    resources = stubborn_registry(closed).merge(ResourceRegistry.of(Binding(Config, fail_at_first, eager=True))).open()
    with pytest.raises(ProviderError, match="not yet") as caught:
        resources.__enter__()
    assert closed == ["client", "stubborn", "cache"]
    assert "OSError: busy" in caught.value.__notes__[0]
    with pytest.raises(ResourceError) as raised, resources:
        assert resources.get(Config) == Config()
    assert str(raised.value) == wording
    assert closed == ["client", "stubborn", "cache"] * 2


def test_nothing_is_built_while_the_resources_are_being_closed(closed: list[str], wording: Wording) -> None:
    """It would be left open; what was built before is still there for those that are closed first."""
    seen: list[str] = []

    class Leaving:
        def __init__(self, resources: ResourceContext) -> None:
            self.resources = resources

        def close(self) -> None:
            seen.append(self.resources.get(Cache).name)
            with pytest.raises(ResourceError) as raised:
                self.resources.get(Tracer)
            assert str(raised.value) == wording
            seen.append("refused")

    leaving = Binding(Leaving, lambda _: Leaving(context))
    context = registry_of(closed).merge(ResourceRegistry.of(leaving)).open()
    with context:
        context.get(Cache)
        context.get(Leaving)
    assert seen == ["cache", "refused"]
    assert closed == ["cache"]
