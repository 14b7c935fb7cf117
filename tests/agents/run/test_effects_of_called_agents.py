"""What a called agent has done outside is seen at its caller, and not done again by the next agent."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelHTTPError, ModelMessage, ModelResponse, ToolCallPart, UnexpectedModelBehavior
from pydantic_ai import TextPart as Text
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail import store, tool
from handrail.agents import LoadedAgent, Project, Registry, RunOptions
from handrail.agents.toolsets.builtin import built_ins
from handrail.errors import RunAbortedError
from handrail.prompt import External, ToolResult
from handrail.runtime import EffectLedger, ToolCall
from handrail.runtime.ledger.effects import EffectResult
from handrail.session import Session
from handrail.store import Store
from handrail.testing import Call, Reply
from tests.agents.desks import CallLog, inside, play, returns
from tests.agents.folders import agent, write
from tests.kit import executor
from tests.wording import Wording

pytestmark = pytest.mark.anyio


class Bank:
    """The world outside: it pays, and answers as often as it is told to."""

    def __init__(self, *silent: bool) -> None:
        self.paid: list[str] = []
        self.silent = list(silent)
        self.is_open = False

    def pay(self, order: str) -> str:
        """Pay an order."""
        self.paid.append(order)
        if self.silent and self.silent.pop(0):
            raise TimeoutError("no answer")
        return f"{order} is paid"

    def find(self, params: Any, _key: str) -> ToolResult[str] | None:
        """Look a payment up."""
        if not self.is_open:
            raise ConnectionError("closed")
        return ToolResult.ok("paid, says the bank") if params.order in self.paid else None

    def boss(self, folder: Path, **said: Any) -> LoadedAgent:
        """An agent that calls a clerk who pays, or has a clerk call one."""
        registry = Registry.of_python(tools=[tool(effect=External(**said), name="pay")(self.pay)])
        boss = agent("boss", tools="[pay]", toolsets="[clerk, chief]")
        files = {"boss.agent": boss, "chief.agent": agent("chief", toolsets="[clerk]")}
        write(folder, {**files, "clerk.agent": agent("clerk", tools="[pay]")})
        project = Project.load(folder, built_ins=built_ins(), entries=registry.entries, packages=False)
        return LoadedAgent(project, project.resolve("boss"))


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """A store of either kind."""
    with store.open("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/s.db") as opened:
        yield opened


def clerk(number: str, order: str = "A") -> list[Reply]:
    """The replies by which a clerk is called, pays once, and answers."""
    return [
        Reply(calls=[Call("clerk", {"input": f"Pay {order}."}, id=number)]),
        *inside(number, [Reply(calls=[Call("pay", {"order": order}, id=f"{number}-pay")]), Reply(text="Sent.")]),
    ]


def chief(*then: Reply) -> list[Reply]:
    """The replies by which a chief is called and calls a clerk."""
    asked, *below = clerk("below")
    called = Reply(calls=[Call("chief", {"input": "Pay A."}, id="chief")])
    return [called, *inside("chief", [asked]), *below, *inside("chief", then)]


END = [Reply(text="Done.")]


def pays(order: str = "A", number: str = "own") -> list[Reply]:
    """The reply by which the boss pays."""
    return [Reply(calls=[Call("pay", {"order": order}, id=number)])]


# ----------------------------------------------------------------------------------------- it is not done a second time


@pytest.mark.parametrize("second", [clerk("two"), pays()], ids=["by another clerk", "by the boss"])
async def test_an_unknown_effect_of_a_called_agent_is_not_repeated(
    kept: Store, tmp_path: Path, second: list[Reply]
) -> None:
    """The repeat is refused; other orders are paid."""
    bank, log = Bank(True), CallLog()
    with Session.open(kept, "s") as session:
        replies = [*clerk("one"), *second, *clerk("three", "B"), *END]
        await play(bank.boss(tmp_path), replies, session=session, listener=log)
    assert bank.paid == ["A", "B"]
    assert [each.call_id for each in log.ended if each.refused] in [["two-pay"], ["own"]]


async def test_an_unknown_effect_of_the_caller_is_not_repeated_by_its_agents(kept: Store, tmp_path: Path) -> None:
    """Nor by those that they call."""
    bank = Bank(True)
    replies = [*pays(), *clerk("one"), *chief(Reply(text="Sent.")), *END]
    with Session.open(kept, "s") as session:
        await play(bank.boss(tmp_path), replies, session=session)
    assert bank.paid == ["A"]


async def test_what_is_found_out_answers_one_equal_call_of_the_run(kept: Store, tmp_path: Path) -> None:
    """By the reconciler: the next clerk reads that it was paid, its boss reads the clerk, and a third call is new."""
    bank, log = Bank(True), CallLog()
    boss = bank.boss(tmp_path, reconcile=bank.find)
    with Session.open(kept, "s") as session:
        await play(boss, [*clerk("one"), *clerk("two"), *END], session=session)
        bank.is_open = True
        await play(boss, [*clerk("three"), *END], session=session, listener=log)
        assert (log.told["three-pay"], bank.paid) == ("paid, says the bank", ["A"])
        await play(boss, [*clerk("four"), *END], session=session)
    assert bank.paid == ["A", "A"]


async def test_what_a_person_has_found_out_answers_an_equal_call_after_a_restart(kept: Store, tmp_path: Path) -> None:
    """In a session that has been opened again, as in the process of another day."""
    bank, log = Bank(True), CallLog()
    boss = bank.boss(tmp_path)
    with Session.open(kept, "s") as session:
        await play(boss, [*clerk("one"), *END], session=session)
    (row,) = kept.rows()
    assert EffectLedger(kept).resolve(row, EffectResult("paid, says ann"))
    for number, paid in (("two", ["A"]), ("three", ["A", "A"])):
        with Session.open(kept, "s") as session:
            await play(boss, [*clerk(number), *END], session=session, listener=log)
        assert bank.paid == paid
    assert (log.told["two-pay"], log.told["three-pay"]) == ("paid, says ann", "A is paid")


async def test_sessions_that_are_not_of_the_run_pay_for_themselves(kept: Store, tmp_path: Path) -> None:
    """Also one whose id begins as that of the run does."""
    bank = Bank(True, True, True)
    for name in ("s", "s-2", "t/s"):
        with Session.open(kept, name) as session:
            await play(bank.boss(tmp_path), [*clerk("one"), *END], session=session)
    assert bank.paid == ["A", "A", "A"]


async def test_a_session_of_a_called_agent_that_is_opened_by_itself_belongs_to_the_run(
    kept: Store, tmp_path: Path
) -> None:
    """Its row names the session that it works for."""
    bank = Bank(True, False, True)
    boss = bank.boss(tmp_path)
    with Session.open(kept, "s") as session:
        await play(boss, [*pays("A"), *clerk("one", "B"), *END], session=session)
    (child,) = {row.partition for row in kept.rows()} - {"s"}
    with Session.open(kept, child) as session:
        till = executor(tool(effect="external", name="pay")(bank.pay), session=session)
        for order in ("A", "C"):
            assert not till.execute(ToolCall(order, "pay", {"order": order}), reply="r").success
    with Session.open(kept, "s") as session:
        await play(boss, [*clerk("three", "C"), *END], session=session)
    assert bank.paid == ["A", "B", "C"]


# ----------------------------------------------------------------------------------------------- the caller reads of it


class Failing:
    """A model whose boss calls a clerk, and whose clerk pays and ends with an error; it keeps what they read."""

    def __init__(self, error: Exception, prefix: str = "") -> None:
        self.error = error
        self.prefix = prefix
        self.read: dict[str, str] = {}

    @property
    def model(self) -> FunctionModel:
        """The model."""
        return FunctionModel(self.reply)

    def reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Answer a request of boss or clerk."""
        came = {part.tool_call_id: str(part.content) for part in returns(messages)}
        self.read |= came
        tool, argument = (
            ("clerk", "input") if "clerk" in {each.name for each in info.function_tools} else ("pay", "order")
        )
        if f"{self.prefix}{tool}" not in came:
            return ModelResponse([ToolCallPart(tool, {argument: "A"}, f"{self.prefix}{tool}")])
        if tool == "pay":
            raise self.error
        return ModelResponse([Text("Done.")])


ERRORS = {
    "500": ModelHTTPError(500, "m", "server error" * 1000),
    "nonsense": UnexpectedModelBehavior("nonsense"),
    "bug": RuntimeError("the model's client broke"),
}


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("silent", [False, True], ids=["done", "unknown"])
async def test_the_failure_of_an_agent_names_what_it_has_done(
    kept: Store, tmp_path: Path, kind: str, silent: bool, wording: Wording
) -> None:
    """Also where what a provider writes is cut; and it says not to ask for it again."""
    failing = Failing(ERRORS[kind])
    with Session.open(kept, "s") as session:
        options = RunOptions(session=session, model=failing.model, mode="approve-all")
        await Bank(silent).boss(tmp_path).run_async("Pay.", options)
    assert failing.read["clerk"].replace("server error", "") == wording


async def test_the_failure_of_a_resumed_agent_names_what_it_did_before(
    kept: Store, tmp_path: Path, wording: Wording
) -> None:
    """In another process: the run is cut off after the payment, and the provider fails when it is resumed."""
    bank = Bank()
    failing = Failing(RunAbortedError("the process ends"))
    with Session.open(kept, "s") as session:
        options = RunOptions(session=session, model=failing.model, mode="approve-all")
        with pytest.raises(RunAbortedError):
            await bank.boss(tmp_path).run_async("Pay.", options)
    failing.error = ERRORS["500"]
    with Session.open(kept, "s") as session:
        options = RunOptions(session=session, model=failing.model, mode="approve-all")
        await bank.boss(tmp_path).run_async(None, options)
    assert failing.read["clerk"].replace("server error", "") == wording
    assert bank.paid == ["A"]


async def test_the_failure_of_an_agent_names_what_the_agents_below_it_have_done(kept: Store, tmp_path: Path) -> None:
    """The chief pays by a clerk that answers, and fails then."""
    bank, log = Bank(), CallLog()
    with Session.open(kept, "s") as session:
        replies = [*chief(Reply(text=""), Reply(text="")), *END]
        await play(bank.boss(tmp_path), replies, session=session, listener=log)
    assert "pay itself was done" in log.told["chief"]


async def test_an_outcome_that_an_agent_has_read_before_it_failed_answers_the_next_one(
    kept: Store, tmp_path: Path
) -> None:
    """Its caller has not read of it."""
    bank, log = Bank(True), CallLog()
    boss = bank.boss(tmp_path, reconcile=bank.find)
    with Session.open(kept, "s") as session:
        await play(boss, [*clerk("one"), *END], session=session)
        bank.is_open = True
        failing = Failing(ERRORS["500"], "two-")
        await boss.run_async("Pay.", RunOptions(session=session, model=failing.model, mode="approve-all"))
        assert failing.read["two-pay"] == "paid, says the bank"
        await play(boss, [*clerk("three"), *END], session=session, listener=log)
    assert (log.told["three-pay"], bank.paid) == ("paid, says the bank", ["A"])
