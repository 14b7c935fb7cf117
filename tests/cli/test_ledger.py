"""`handrail ledger`: effects in words and as JSON, what a person decides about them, and what the tools are asked."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail import store as stores
from handrail.cli.ledger import EFFECT
from handrail.operations import effects
from handrail.operations.effects import EffectView
from handrail.prompt import BinaryPart, TextPart, Tool, ToolResult
from handrail.runtime import EffectLedger
from handrail.runtime.ledger.effects import Claimed, ClaimRequest, Hit, NotApplied, NotKnown
from handrail.runtime.ledger.records import dump_result
from handrail.session import Session
from handrail.store import EffectRow, Store
from handrail.store.protocol import UNTIL_APPLIED, ClaimOwner
from tests.cli.agent_folders import call, script, write
from tests.cli.desk import SESSION, Command, Run, Terminal, effect
from tests.store.kit import insert
from tests.wording import Wording

DRAW = Tool[None, str | None](name="draw", description="Draw.")


NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


ORDER = {"order": 7, "to": "Zürich"}


def shown_fields(view: EffectView) -> dict[str, str | int]:
    """What `ledger show` prints of an effect."""
    cells = ((column.name, column.text_for_people(view, indent=2)) for column in EFFECT.fields if column.name)
    return {name: cell for name, cell in cells if cell}


def test_files_of_a_result_are_shown_by_kind_and_size() -> None:
    """Their bytes would fill the screen."""
    parts = (TextPart("By month:"), BinaryPart(bytes(12_000), "image/png"))
    for value, shown in ((None, None), ("drawn", "drawn")):
        result = dump_result(DRAW, ToolResult("Sales.", value, parts=parts))
        row = effect("k", "done", NOW, value=result.value)
        fields = shown_fields(EffectView(row, NOW))
        assert (fields.get("value"), fields["parts"]) == (shown, "By month:\n[image/png, 12 kB]")
        told = EFFECT.json(EffectView(row, NOW))
        assert told["parts"] == [{"text": "By month:"}, {"media_type": "image/png", "size": 12_000}]


RECORDED = [
    pytest.param(None, None, None, id="not recorded"),
    pytest.param(json.dumps(ORDER), ORDER, None, id="as written"),
    pytest.param(json.dumps({"arguments": ORDER, "written": {}}), ORDER, {}, id="changed"),
    pytest.param('"{\\"text\\":\\"aaa... (cut)"', '{"text":"aaa... (cut)', None, id="cut"),
    pytest.param("{cut", "cannot be read: {cut", None, id="not JSON"),
]


@pytest.mark.parametrize("recorded, arguments, written", RECORDED)
def test_arguments_are_shown_with_what_the_model_wrote(
    recorded: str | None, arguments: object, written: object, wording: Wording
) -> None:
    """Indented where there is room; what was cut, or something else has written, is text."""
    row = effect("k", "unknown", NOW, arguments=None if recorded is None else recorded.encode())
    fields = shown_fields(EffectView(row, NOW))
    assert [fields["arguments"], fields.get("model wrote", "")] == wording
    told = EFFECT.json(EffectView(row, NOW))
    assert (told["arguments"], told["written"]) == (arguments, written)


def _row(store: Store, key: str, partition: str = "") -> EffectRow:
    row = store.get(partition, key)
    assert row is not None
    return row


DAY, WAITS = timedelta(days=1), "session:pay:waits"


FINDINGS = [
    ("app:pay:unknown --happened", ("done", None, DAY)),
    ("app:pay:unknown --happened --message Paid. --value 17", ("done", b"17", DAY)),
    ('app:pay:unknown --happened --value {"n":"ü"} --ttl 36h', ("done", b'{"n":"\\u00fc"}', timedelta(hours=36))),
    ("app:pay:unknown --happened --value null --ttl never", ("done", b"null", None)),
    ("app:pay:unknown --not-happened", ("failed", None, DAY)),
    ("session:pay:lapsed --not-happened --why late", ("failed", None, DAY)),
    (f"{WAITS} --happened --message corrected", ("done", b'"receipt"', timedelta(days=36_500))),
    (f"{WAITS} --happened --value null", ("done", b"null", timedelta(days=36_500))),
]


@pytest.mark.parametrize("words, kept", FINDINGS)
def test_finding_is_recorded(
    handrail: Command, store: Store, words: str, kept: tuple[str, bytes | None, timedelta | None], wording: Wording
) -> None:
    """The same call is answered with it, or may run again; an unknown value is lost, or stays as recorded."""
    _unapplied(store)
    ran = handrail("ledger", "reconcile", *words.split())
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    key = words.split(maxsplit=1)[0]
    row = _row(store, key, SESSION if key.startswith("session") else "")
    assert row.completed_at is not None
    assert (row.status, row.value, row.expires_at and row.expires_at - row.completed_at) == kept
    assert [row.message, row.note] == wording


GUESSES = [
    *(("reconcile session:pay:running --happened", 1), ("reconcile session:pay:done --happened", 1)),
    *(("reconcile session:pay:waits --not-happened", 1), ("reconcile app:pay:unknown --applied", 1)),
    *(("reconcile app:pay:unknown", 2), ("reconcile app:pay:unknown --happened --why x", 2)),
    ("reconcile app:pay:unknown --not-happened --message x", 2),
    ("reconcile app:pay:unknown --not-happened --value 1", 2),
    *((f"reconcile app:pay:unknown --applied {also}", 2) for also in ("--value 1", "--happened", "--not-happened")),
    *((f"reconcile app:pay:unknown --happened --value {value}", 2) for value in ("paid", "NaN")),
    *((f"reconcile app:pay:unknown --happened {ttl}", 2) for ttl in ("--ttl=-1h", "--ttl soon")),
    *(("prune", 2), ("prune --dry-run", 0)),
]


@pytest.mark.parametrize("words, code", GUESSES)
def test_nothing_is_changed_by_guess(handrail: Command, store: Store, words: str, code: int, wording: Wording) -> None:
    """An owner at work is not overruled, nor is a result; what could happen twice stays; a dry run only shows."""
    _unapplied(store)
    before = {*store.rows()}
    ran = handrail("ledger", *words.split())
    leases = (str(row.lease_until) for row in before if row.lease_until is not None)
    said = ran.err + ran.out
    for lease in leases:
        said = said.replace(lease, "UNTIL")
    assert (ran.code, said) == (code, wording)
    assert (ran.out == "") == (code != 0)
    assert {*store.rows()} == before


def test_what_is_to_go_is_removed(handrail: Command, store: Store, wording: Wording) -> None:
    """And nothing else."""
    before = {row.key for row in store.rows()}
    ran = handrail("ledger", "prune", "--yes")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    assert before - {row.key for row in store.rows()} == {"app:pay:expired"}


REPORTS = [
    ("prune --dry-run", {"removed": 0, "would_remove": 1, "dry_run": True}),
    ("prune --yes", {"removed": 1, "would_remove": 0, "dry_run": False}),
]


@pytest.mark.parametrize("words, document", REPORTS)
def test_programs_are_told_what_was_removed(handrail: Command, words: str, document: dict[str, object]) -> None:
    """One document."""
    assert handrail.document("ledger", *words.split()) == document


def _unapplied(store: Store) -> str:
    """The key of an effect that is done, and whose result waits for `apply`."""
    done, key = _row(store, "session:pay:done", SESSION), "session:pay:waits"
    assert done.completed_at is not None
    kept = done._replace(
        key=key, effect_id="f" * 32, applied_at=None, expires_at=done.completed_at + UNTIL_APPLIED, value=b'"receipt"'
    )
    assert insert(store, kept) is None
    return key


def test_person_records_that_result_has_been_applied_by_hand(handrail: Command, store: Store, wording: Wording) -> None:
    """It is not applied any more; what has no result is not applied."""
    key = _unapplied(store)
    ran = handrail("ledger", "reconcile", key, "--applied", "--why", "ada has booked it")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    row = _row(store, key, SESSION)
    assert (row.status, row.note, row.value) == ("done", wording, b'"receipt"')
    assert row.applied_at is not None
    assert row.expires_at == row.applied_at + timedelta(days=1)
    assert handrail("ledger", "reconcile", key, "--applied").err == wording
    assert handrail("ledger", "reconcile", "app:pay:unknown", "--applied").err == wording


def test_a_finding_about_a_row_that_has_changed_is_not_written(
    handrail: Command, store: Store, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Between looking and writing somebody else may have decided; that stands."""

    def looked(store: Store, key: str, partition: str | None) -> EffectRow:
        row = _row(store, key)
        assert EffectLedger(store).resolve(row, NotApplied("somebody else"))
        return row

    monkeypatch.setattr(effects, "find_effect", looked)
    ran = handrail("ledger", "reconcile", "app:pay:unknown", "--happened")
    assert (ran.code, ran.err) == (1, wording)
    assert _row(store, "app:pay:unknown").note == "somebody else"


def test_pruning_asks_first(handrail: Command, terminal: Terminal, store: Store, wording: Wording) -> None:
    """It says how much it would remove; anything but a yes removes nothing, and without a terminal it refuses."""
    assert handrail("ledger", "prune").code == 2
    assert terminal.run("ledger", "prune", typed="\n", width=80) == 1
    assert terminal.lines == wording
    assert len(list(store.rows())) == 7
    assert terminal.run("ledger", "prune", typed="y\n", width=80) == 0
    assert terminal.lines == wording
    assert len(list(store.rows())) == 6


AGENT = "---\nname: desk\ntools: [pay, open_bank]\n---\nYou pay.\n"

TOOLS = """
    from pathlib import Path
    from handrail import tool
    from handrail.adapters.tool_executor import ToolExecutor
    from handrail.prompt import External, Prompt, PromptTemplate, ToolResult, ToolsSection
    def bank(params, key):
        if not Path("open").exists():
            raise ConnectionError("the bank is closed")
        return ToolResult.ok("paid, says the bank") if Path("paid").exists() else None
    @tool(effect=External(reconcile=bank))
    def pay(order: str) -> str:
        "Pays."
        with Path("paid").open("a") as book:
            book.write(order)
        raise TimeoutError("no answer")
    @tool
    def open_bank() -> str:
        "Opens the bank."
        Path("open").touch()
        return "open"
    TOOLS = [pay, open_bank]
    def desk(session):
        section = ToolsSection(title="Till", tools=[pay])
        return ToolExecutor(prompt=Prompt(PromptTemplate(ns="t", key="t", sections=[section])), session=session)
    def clerk(session):
        return "nobody"
    """

KEPT = ("--store", "sqlite:///pay.db", "--session", "monday", "--approve", "approve-all")
STORE = ("--store", "sqlite:///pay.db")


@pytest.fixture
def pays(folder: Path) -> Path:
    """A folder with an agent that pays, and a bank that is closed."""
    write(folder, desk__agent=AGENT, tools__py=TOOLS)
    return folder


def pay(folder: Path, run: Run, *kept: str) -> tuple[int, str]:
    """Have the agent pay once; the exit code, and what is reported."""
    model = script(folder, {"calls": [call("pay", order="A")]}, {"text": "Done."})
    ran = run("pay it", "--model", model, *(kept or KEPT))
    assert ran.out == "Done.\n"
    return ran.code, ran.err


@pytest.mark.parametrize("kept", [KEPT, ("--approve", "approve-all")], ids=["stored", "not stored"])
def test_a_run_that_leaves_an_effect_unknown_ends_with_3(
    pays: Path, run: Run, kept: tuple[str, ...], wording: Wording
) -> None:
    """It names the effect, and the command that settles it."""
    code, said = pay(pays, run, *kept)
    assert code == 3
    assert "\n".join(line for line in said.splitlines() if "may have" in line or "ledger" in line) == wording


@pytest.mark.parametrize("name", ["desk.agent", "tools:desk"])
def test_the_tools_are_asked_by_a_command(pays: Path, run: Run, handrail: Command, name: str) -> None:
    """What has happened answers the next equal call, once."""
    key = pay(pays, run)[1].split("ledger reconcile ")[1].split()[0]
    asked = handrail("ledger", "reconcile", key, "--ask", name, *STORE)
    assert asked.code == 1
    assert asked.out.startswith(f"{key} is still unknown")
    (pays / "open").touch()
    with stores.open(STORE[1]) as store, Session.open(store, "monday"):
        asked = handrail("ledger", "reconcile", "--all", "--ask", name, *STORE, "--format", "json")
    assert (asked.code, json.loads(asked.out)["status"]) == (1, "unknown")
    assert "session monday" in asked.err
    asked = handrail("ledger", "reconcile", "--all", "--ask", name, *STORE)
    assert (asked.code, asked.out) == (0, f"{key} has happened.\n")
    code, said = pay(pays, run)
    assert (code, (pays / "paid").read_text()) == (0, "A")
    assert 'pay(order="A") ok' in said


def test_a_run_asks_before_its_first_request(pays: Path, run: Run) -> None:
    """The model that repeats the call is answered with what was found out."""
    assert pay(pays, run)[0] == 3
    (pays / "open").touch()
    assert pay(pays, run)[0] == 0
    assert (pays / "paid").read_text() == "A"


def test_an_effect_that_did_not_happen_may_run_again(pays: Path, run: Run, handrail: Command) -> None:
    """The bank has no record of it."""
    pay(pays, run)
    (pays / "open").touch()
    (pays / "paid").unlink()
    asked = handrail("ledger", "reconcile", "--all", "--ask", "desk.agent", *STORE)
    assert asked.code == 0
    assert "has not happened" in asked.out
    asked = handrail("ledger", "reconcile", "--all", "--ask", "desk.agent", *STORE)
    assert (asked.code, asked.out) == (0, "")


UNASKABLE = [
    *("--all", "--ask desk.agent", "key --all --ask desk.agent", "key --ask desk.agent --happened"),
    *("--all --ask tools:nothing", "--all --ask tools:clerk"),
]


@pytest.mark.parametrize("words", UNASKABLE)
def test_what_cannot_be_asked_is_refused(pays: Path, run: Run, handrail: Command, words: str, wording: Wording) -> None:
    """It says what would be right."""
    pay(pays, run)
    asked = handrail("ledger", "reconcile", *words.split(), *STORE)
    assert (asked.code, asked.err) == (2, wording)


BOSS = "---\nname: boss\ntoolsets: [desk]\n---\nYou lead.\n"


def paid_by_the_called(number: str) -> tuple[dict[str, Any], ...]:
    """The replies of a boss who has the desk pay."""
    return (
        {"calls": [call("desk", number, input="pay A")]},
        {"within": number, "calls": [call("pay", f"{number}-pay", order="A")]},
        {"within": number, "text": "It may be paid."},
    )


@pytest.mark.parametrize(
    "kept", [KEPT, ("--store", "memory:", "--approve", "approve-all")], ids=["stored", "not stored"]
)
def test_an_unknown_effect_of_a_called_agent_is_reported(pays: Path, handrail: Command, kept: tuple[str, ...]) -> None:
    """With the command that asks the tools of the called agent, which has a session of its own."""
    write(pays, desk__agent=AGENT, tools__py=TOOLS, boss__agent=BOSS)
    ran = handrail(
        "run", "boss.agent", "pay it", "--model", script(pays, *paid_by_the_called("one"), {"text": "Done."}), *kept
    )
    assert (ran.code, ran.out) == (3, "Done.\n")
    printed = [shlex.split(line) for line in ran.err.splitlines() if line.startswith("  handrail ledger")]
    assert len(printed) == (kept == KEPT)
    if kept == KEPT:
        (pays / "open").touch()
        asked = handrail(*printed[0][1:])
        assert (asked.code, asked.out) == (0, f"{printed[0][3]} has happened.\n")


def test_an_effect_of_a_called_agent_that_the_run_has_settled_is_not_reported(pays: Path, handrail: Command) -> None:
    """Another call of the agent has found out."""
    write(
        pays, desk__agent=AGENT, tools__py=TOOLS, boss__agent=BOSS.replace("toolsets", "tools: [open_bank]\ntoolsets")
    )
    opened = {"calls": [call("open_bank", "opens")]}
    replies = (*paid_by_the_called("one"), opened, *paid_by_the_called("two"), {"text": "Done."})
    ran = handrail("run", "boss.agent", "pay it", "--model", script(pays, *replies), *KEPT)
    assert (ran.code, ran.out, (pays / "paid").read_text()) == (0, "Done.\n", "A")
    assert "ledger" not in ran.err


def test_the_model_sees_the_value_that_a_person_records(handrail: Command, store: Store) -> None:
    """An unknown effect hides no value, because its handler has returned none."""
    ledger = EffectLedger(store)
    request = ClaimRequest("", "app:pay:lost", "pay", "ab" * 32, ClaimOwner(), timedelta(minutes=1))
    claimed = ledger.claim(request)
    assert isinstance(claimed, Claimed)
    assert ledger.end(claimed, NotKnown("timed out"))
    assert handrail("ledger", "reconcile", request.key, "--happened", "--value", "17").code == 0
    hit = ledger.claim(request)
    assert isinstance(hit, Hit)
    assert (hit.row.value, hit.row.exclude_value_from_context) == (b"17", False)
