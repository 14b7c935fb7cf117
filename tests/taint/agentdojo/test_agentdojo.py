"""What the policy about taint does when a model obeys every injection of AgentDojo."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.architecture.sources import ROOT
from tests.extent import FULL, some
from tests.taint.agentdojo.play import Manner, Played, play
from tests.taint.agentdojo.suites import Case, cases

PAGE = ROOT / "docs" / "explanation" / "security.md"
SUITES = ("workspace", "travel", "banking", "slack")


def cases_of(suite: str) -> list[Case]:
    """All cases of a suite in the full form, else four."""
    return some([case for case in cases() if case.suite == suite], 4)


@pytest.mark.timeout(600)  # the full form plays 560 cases of the largest suite three times
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.short(1)
def test_no_injected_call_acts_unless_a_person_has_agreed(suite: str) -> None:
    """Without the policy each of them acts; with it none does, and a person who agrees to the task's own loses none."""
    of_suite = cases_of(suite)
    played = {manner: [play(case, manner) for case in of_suite] for manner in get_args(Manner)}
    for case, without, asking, denying in zip(of_suite, *played.values(), strict=True):
        assert without.ran == without.injected, case
        assert asking.ran == denying.ran == 0, case
        assert asking.was_met == without.was_met, case
        assert asking.questions == asking.injected + asking.own, case
        assert denying.questions == 0, case
        assert asking.task_is_done >= without.task_is_done, case
    if FULL:
        assert row(suite, played) in PAGE.read_text(encoding="utf-8")


def row(suite: str, played: dict[Manner, list[Played]]) -> str:
    """A line of the table of the page: attacks and tasks in each manner, questions where the policy asks."""
    attacks = [sum(each.attack_is_done for each in results) for results in played.values()]
    tasks = [sum(each.task_is_done for each in results) for results in played.values()]
    injected = sum(each.injected for each in played["none"])
    questions, own = sum(each.questions for each in played["ask"]), sum(each.own for each in played["ask"])
    by_manner = (" / ".join(f"{each:,}" for each in figures) for figures in (attacks, tasks))
    return f"| {suite} | {len(played['none'])} | {injected:,} | {' | '.join(by_manner)} | {questions:,} | {own:,} |"
