"""`handrail run` with a stored session: questions that wait, a session that is lost, and a store in the folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.cli.agents.settings import opened_session
from tests.cli.agent_folders import call, noting, script, write
from tests.cli.desk import ENDS_INPUT, INTERRUPTS, Command, Dialogue, Run
from tests.store.postgres_server import fresh_url
from tests.wording import Wording

HELLO = {"text": "Hello."}


@pytest.mark.requirement("A-32")
def test_a_person_is_asked_before_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """The text streams, the question stands on lines of its own, and the answer is not printed twice."""
    dialogue = Dialogue(monkeypatch, ["y\n", "n\n", "no bread\n"])
    calls = [call("note", "a", text="milk"), call("note", "b", text="bread")]
    model = script(folder, {"text": "I note", "calls": calls}, {"text": "Done."})
    assert dialogue.main("run", "desk.agent", "note it", "--model", model) == 0
    assert [line for line in dialogue.lines if line.startswith("approve?")] == [wording, wording]
    assert 'arguments  text = "milk"' in dialogue.lines
    assert 'desk: note(text="milk") ok, ' in dialogue.screen
    assert "no bread" in dialogue.screen
    assert dialogue.lines.count("Done.") == 1
    assert dialogue.lines.count("I note") == 1


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("typed, code", [(ENDS_INPUT, 0), (INTERRUPTS, 130)], ids=["end of input", "Ctrl-C"])
def test_a_person_may_go_away_instead(
    folder: Path, monkeypatch: pytest.MonkeyPatch, typed: str, code: int, wording: Wording
) -> None:
    """The end of the input is a no; Ctrl-C ends the run."""
    dialogue = Dialogue(monkeypatch, [typed])
    assert dialogue.main("run", "desk.agent", "note it", "--model", noting(folder, "milk")) == code
    assert [line for line in dialogue.lines if line.endswith("]")] == wording
    assert ('note(text="milk") refused' in dialogue.screen) == (code == 0)
    assert "Traceback" not in dialogue.screen


def test_a_question_is_left_for_later(folder: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """And asked again when the session is resumed, in whatever process."""
    words = ["run", "desk.agent", "--store", "sqlite:///desk.db", "--session", "monday"]
    first = script(folder, {"calls": [call("note", text="milk")]})
    assert Dialogue(monkeypatch, ["l\n"]).main(*words, "note it", "--model", first) == 3
    again = Dialogue(monkeypatch, ["y\n"])
    assert again.main(*words, "--model", script(folder, {"text": "Done."})) == 0
    assert 'arguments  text = "milk"' in again.lines
    assert [line for line in again.lines if line.startswith("approve?")] == [wording]
    assert "Done." in again.lines


def test_a_run_waits_for_approval_and_is_resumed(run: Run, folder: Path, wording: Wording) -> None:
    """From another process, with the call that was left open."""
    kept = ("--store", "sqlite:///desk.db", "--session", "monday")
    first = script(folder, {"calls": [call("note", text="milk")]})
    ran = run("note it", "--model", first, "--approve", "later", *kept)
    assert (ran.code, ran.out, ran.err) == (3, "", wording)
    ran = run("--model", script(folder, {"text": "Done."}), "--approve", "later", *kept)
    assert ran.code == 3
    ran = run("--model", script(folder, {"text": "Done."}), "--approve", "approve-all", *kept)
    assert (ran.code, ran.out) == (0, "Done.\n")
    assert 'note(text="milk") ok' in ran.err
    ran = run("--model", script(folder, {"text": "Done."}), *kept)
    assert (ran.code, ran.out, ran.err) == (2, "", wording)


FILES = "---\nname: desk\ntoolsets: [files]\n---\nYou write.\n"


def test_a_printed_command_resumes_the_run_as_it_was_begun(
    run: Run, folder: Path, handrail: Command, wording: Wording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its folder, under its rules; left out, they are asked for, and nothing runs."""
    rules = "deny: [{tool: write_file, arguments: {path: secret.txt}}]\n"
    write(folder, desk__agent=FILES, strict__yaml=rules)
    (folder / "the other").mkdir()
    secret = call("write_file", "b", path="secret.txt", content="x")
    calls = [call("write_file", "a", path="a.txt", content="x")]
    script(folder, {"calls": calls}, name="first.yaml")
    stored = ("--store", "sqlite:///desk.db", "--session", "monday", "--model")
    first, kept = (*stored, "script:first.yaml"), (*stored, "script:next.yaml")
    options = ("--root", "the other", "--rules", "strict.yaml", "--max-depth", "3", "--request-limit", "9")
    ran = run("write it", *first, "--approve", "later", *options)
    printed = ran.err.splitlines()[-1].strip()
    assert (ran.code, printed) == (3, wording)
    script(folder, {"calls": [secret]}, {"text": "Done."}, name="next.yaml")
    ran = run(*kept, "--approve", "approve-all")
    assert (ran.code, ran.out, ran.err) == (2, "", wording)
    assert not (folder / "a.txt").exists()
    assert run(*kept, "--root", "the other", "--approve", "approve-all").code == 2
    # In another folder the paths are whole.
    monkeypatch.chdir(folder.parent)
    store = f"sqlite:///{folder / 'desk.db'}"
    answered = handrail("approvals", "answer", "monday", "a", "yes", "--store", store).out.splitlines()
    assert answered[-1].replace(str(folder), "FOLDER").strip() == wording
    script(folder, {"calls": [secret]}, {"text": "Done."}, name="first.yaml")
    ran = handrail(*shlex.split(answered[-1])[1:])
    assert (ran.code, ran.out) == (0, "Done.\n"), ran.err
    assert [path.name for path in (folder / "the other").iterdir()] == ["a.txt"]


def test_a_session_is_begun_and_named_where_there_is_a_store(run: Run, folder: Path, wording: Wording) -> None:
    """So that it can be gone on with."""
    ran = run("hello", "--model", script(folder, HELLO), "--store", "sqlite:///desk.db")
    assert ran.code == 0
    with stores.open("sqlite:///desk.db") as store:
        (row,) = store.sessions()
    said = [line.replace(row.session_id, "SESSION") for line in ran.err.splitlines() if row.session_id in line]
    assert said == wording


def test_a_conversation_goes_on(run: Run, folder: Path) -> None:
    """With the next input."""
    write(folder, pyproject__toml="[tool.handrail]\nstore = 'sqlite:///kept.db'\n")
    for _ in range(2):
        assert run("hello", "--model", script(folder, HELLO), "--session", "one").code == 0
    assert (folder / "kept.db").exists()


def test_a_session_that_somebody_else_has_open_is_told(run: Run, folder: Path) -> None:
    """Another run of it goes on."""
    words = ("hello", "--model", script(folder, HELLO), "--store", "sqlite:///desk.db", "--session", "one")
    with opened_session("sqlite:///desk.db", "one"):
        ran = run(*words)
    assert (ran.code, ran.out) == (1, "")
    assert len(ran.err.splitlines()) == 1
    assert "one" in ran.err


PAYING = "---\nname: desk\ntools: [pay, wait]\n---\nYou pay.\n"


PAYING_TOOLS = """
    import os
    from pathlib import Path
    from handrail import store, tool
    from handrail.runtime import Session
    @tool(effect="external")
    def pay(order: str) -> str:
        "Pays."
        with Path("paid").open("a") as book:
            book.write(order)
        return "paid"
    @tool
    def wait() -> str:
        "Another machine holds this one for dead, once."
        if not Path("evicted").exists():
            Path("evicted").touch()
            with store.open(os.environ["DESK"]) as other, Session.open(other, "monday", evict=True):
                pass
        return "waited"
    TOOLS = [pay, wait]
    """


def test_run_that_loses_its_session_is_resumed(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model is not asked again, and what it has paid is not paid again."""
    write(folder, desk__agent=PAYING, tools__py=PAYING_TOOLS)
    calls = {"calls": [call("pay", order="A")]}, {"calls": [call("wait", "two")]}
    with fresh_url() as url:
        monkeypatch.setenv("DESK", url)
        kept = ("--store", url, "--session", "monday", "--approve", "approve-all", "--model")
        lost = run("pay it", *kept, script(folder, *calls, {"text": "Never said."}))
        assert (lost.code, lost.out) == (75, "")
        assert "another process" in lost.err
        resumed = run(*kept, script(folder, {"text": "Done."}))
        assert (resumed.code, resumed.out) == (0, "Done.\n")
    assert (folder / "paid").read_text() == "A"
