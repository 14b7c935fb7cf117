"""What the tests of the programs share: the providers, and a forge."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.providers import forge, wire
from tests.providers.chat import Chat
from tests.providers.messages import Messages
from tests.providers.responses import Responses


@pytest.fixture(scope="session")
def provider() -> Generator[wire.Provider]:
    """All three APIs."""
    with wire.serving(Chat(), Responses(), Messages()) as running:
        yield running


@pytest.fixture(scope="session")
def smith(provider: wire.Provider) -> Generator[forge.Forge]:
    """One process that makes those that are killed."""
    with forge.running(provider.environment()) as running:
        yield running
