"""Programs that are killed and run again, and what holds of a run that has come to its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from handrail.crash_points import POINTS
from tests.extent import some
from tests.providers.forge import Forge, Kill, Run
from tests.providers.programs import payments_in, program_of
from tests.providers.wire import Provider

ORDERS = ["A-17", "A-18"]
IN_DOUBT = {"after-claim", "before-handler", "after-handler", "before-commit"} | {
    point for point in POINTS if point.startswith("unit-")
}
"""The points at which a payment may have begun and is not recorded."""

CALL_POINTS = [point for point in POINTS if not point.startswith(("journal-", "participant-"))]


@dataclass(frozen=True)
class Bench:
    """What kills a program, and what it is compared with.

    Attributes:
        smith: makes the processes.
        provider: what they talk to.
        whole: the undisturbed run of each program.
        root: has a folder for each kill.
    """

    smith: Forge
    provider: Provider
    whole: dict[str, Run]
    root: Path

    def survives(self, name: str, kill: Kill, *, may_doubt: bool) -> None:
        """Kill a program, run it again to its end, and check what it has then."""
        folder = self.root / f"{kill.place}-{kill.nth}"
        folder.mkdir()
        assert self.smith.dies(program_of(name), folder, kill)
        check(self.smith.run(program_of(name), folder), self.whole[name], folder, may_doubt=may_doubt)
        assert self.provider.refusals == []


def times_of(times: int) -> list[int]:
    """At which times of several a process is killed."""
    return some(range(1, times + 1), 2)


def check(run: Run, whole: Run, folder: Path, *, may_doubt: bool = False) -> None:
    """What holds of a run that has come to its end, however often it was killed before."""
    paid = payments_in(folder)
    assert len({*paid}) == len(paid), "an order was paid twice"
    assert {order for order, success, _ in run.payments if success} <= {*paid}
    assert run.notes == whole.notes
    assert run.output == whole.output
    doubts = {order: told for order, success, told in run.payments if not success}
    if not doubts:
        assert run.messages == whole.messages
        assert sorted(paid) == ORDERS
        assert run.still_open == []
        return
    assert may_doubt
    assert len(run.messages) == len(whole.messages)
    changed = [mine for mine, other in zip(run.messages, whole.messages, strict=True) if mine != other]
    assert len(changed) == len(doubts)
    assert all(doubts.values())
    assert all(any(told in str(message) for told in doubts.values()) for message in changed)
    assert run.still_open == ["unknown"] * len(doubts)
