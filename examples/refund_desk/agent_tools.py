"""The refund desk for an agent file: its tools, policies and resources as the toolset `refunds` of `refund_desk.agent`.

They are the very tools of `desk.py`. What is added here is where the shop and the payment service come from: both are
made when the first call needs them, and closed with the run.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic_ai import RunContext

from desk import DESK_TOOLS, desk_policies
from handrail.agents import current_run
from handrail.filesystem import Filesystem
from handrail.prompt import ToolsSection
from handrail.resources import Binding, ResourceRegistry
from payments import Payments, running_service
from refunds import Rules
from shop import Shop

DAY = date(2026, 3, 4)
"""The day of the newest request."""

ANSWER_LOST_FOR = ("A-1009",)
"""The payment service pays the first refund of these orders, and then its answer is lost."""


class Premises:
    """The shop's database and the payment service of one run."""

    def __init__(self) -> None:
        """Nothing is made yet."""
        self._stack = ExitStack()
        self._payments: Payments | None = None

    def payments(self) -> Payments:
        """The payment service, started when it is first asked for; whoever asks holds the lock of the resources."""
        if self._payments is None:
            self._payments = self._stack.enter_context(running_service(lose_answers_for=ANSWER_LOST_FOR))
        return self._payments

    def shop(self) -> Shop:
        """The shop, in a database of its own."""
        folder = self._stack.enter_context(TemporaryDirectory(prefix="refund-desk-"))
        return Shop.make(Path(folder) / "shop.db")

    def close(self) -> None:
        """Stop the service, and remove the database."""
        self._stack.close()


def refunds(ctx: RunContext[Any]) -> ToolsSection:
    """The tools of the desk, made for each run; files are read and written in the folder that the run works on."""
    run = current_run()
    premises = Premises()
    return ToolsSection(
        title="Refunds",
        key="refunds",
        tools=DESK_TOOLS,
        policies=desk_policies(),
        resources=ResourceRegistry.of(
            Binding(Premises, lambda _: premises),
            Binding(Payments, lambda resolver: resolver.get(Premises).payments()),
            Binding(Shop, lambda resolver: resolver.get(Premises).shop()),
            Binding.instance(Rules, Rules(DAY)),
            Binding.instance(Filesystem, run.filesystem(run.root)),
        ),
    )


TOOLSETS = {"refunds": refunds}
