"""Programs that are killed and run again, and what holds of a run that has come to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from handrail.crash_points import POINTS
from tests.extent import some
from tests.providers.chat import Chat
from tests.providers.forge import Forge, Kill, Run
from tests.providers.messages import Messages
from tests.providers.programs import payments_in, program_of
from tests.providers.responses import Responses
from tests.providers.wire import Provider, serving

ORDERS = ["A-17", "A-18"]
IN_DOUBT = {"after-claim", "before-handler", "after-handler", "before-commit"} | {
    point for point in POINTS if point.startswith("unit-")
}
"""The points at which a payment may have begun and is not recorded."""

CALL_POINTS = [point for point in POINTS if not point.startswith(("journal-", "participant-", "undo-"))]


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

    def runs_once(self, name: str) -> None:
        """Run a program to its end, which takes three requests; run again, it only prints its answer."""
        undisturbed, before = self.whole[name], len(self.provider.requests)  # in this order: the forge is warm then
        first = self.smith.run(program_of(name), self.root)
        assert len(self.provider.requests) - before == 3
        check(first, undisturbed, self.root)
        assert self.smith.run(program_of(name), self.root) == first
        assert len(self.provider.requests) - before == 3
        assert self.provider.refusals == []

    def survives_many(self, name: str, reached: Sequence[tuple[int | str, int]], *, trials: int) -> None:
        """Kill a program at four chance places, each with how often it comes there, and check its end."""
        chance = Random(name)  # noqa: S311 - no secret
        for trial in range(trials):
            folder = self.root / str(trial)
            folder.mkdir()
            kills = [Kill(place, chance.randint(1, times)) for place, times in chance.sample(reached, 4)]
            died = [self.smith.dies(program_of(name), folder, kill) for kill in kills]
            assert died[0]
            check(self.smith.run(program_of(name), folder), self.whole[name], folder, may_doubt=True)
        assert self.provider.refusals == []

    def survives_fresh_ids(self, name: str, places: Sequence[int | str]) -> None:
        """Kill a program at the second time at each place; a repeated request is answered under other ids."""
        with serving(Chat(), Responses(), Messages(), fresh_ids=True) as other:
            for place in places:
                folder = self.root / str(place).replace(":", "-")
                folder.mkdir()
                self.smith.dies(program_of(name), folder, Kill(place, 2), other.environment())
                run = self.smith.run(program_of(name), folder, other.environment())
                assert payments_in(folder) == ORDERS
                assert [payment[:2] for payment in run.payments] == [[order, True] for order in ORDERS]
                assert run.notes == ["A-17 is paid"]
            assert other.refusals == []

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
    doubts = {order: text for order, success, text in run.payments if not success}
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
    assert all(any(text in str(message) for text in doubts.values()) for message in changed)
    assert run.still_open == ["unknown"] * len(doubts)
