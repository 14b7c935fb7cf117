"""`handrail sessions show --conversation`: its options, over stores in files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from handrail.runtime import ToolCall
from handrail.session.conversation import Conversation
from handrail.session.conversation_parts import ConversationPart
from tests.cli.desk import ENTRY, Command, Terminal
from tests.cli.sessions.transcript.items import CLERK
from tests.transcript.desks import Desk, desk, order
from tests.wording import Wording


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a store with a conversation: two replies of the program's own loop, and a word of an agent."""
    url = f"sqlite:///{tmp_path / 'talk.db'}"
    with desk(url) as at_desk:
        at_desk.ask("Pay.")
        at_desk.turn(("pay", order("A-1")), text="I pay.")
        at_desk.clock.advance(timedelta(hours=1))
        at_desk.turn(("fail", order("A-2")))
        Conversation(at_desk.session, *CLERK, clock=at_desk.clock).add(
            ConversationPart(({"role": "user", "content": "Hello."},))
        )
        at_desk.say("Done.")
    return url


@pytest.fixture
def held(url: str) -> Iterator[Desk]:
    """The desk, while its session is held."""
    with desk(url) as at_desk:
        yield at_desk


def test_a_conversation_is_shown(handrail: Command, wording: Wording) -> None:
    """Nothing is printed beside it."""
    ran = handrail("sessions", "show", "desk", "--conversation")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == wording


def test_a_conversation_fits_a_terminal(terminal: Terminal, wording: Wording) -> None:
    """Of 80 columns."""
    assert terminal.run("sessions", "show", "desk", "--conversation", width=80) == 0
    assert terminal.lines == wording


@pytest.mark.parametrize("form", ["table", "markdown", "html", "json"])
def test_a_conversation_goes_to_a_file(form: str, handrail: Command, tmp_path: Path) -> None:
    """The same as to standard output; a file that is there is replaced."""
    shown = handrail("sessions", "show", "desk", "--conversation", "--full", "--format", form)
    file = tmp_path / "out"
    file.write_text("x" * 100_000)
    ran = handrail("sessions", "show", "desk", "--conversation", "--full", "--format", form, "--output", str(file))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert file.read_text() == shown.out


def test_a_file_that_cannot_be_written_is_named(handrail: Command, tmp_path: Path, wording: Wording) -> None:
    """Before anything is printed."""
    ran = handrail("sessions", "show", "desk", "--conversation", "--output", str(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == wording
    absent = tmp_path / "out"
    assert handrail("sessions", "show", "nowhere", "--conversation", "--output", str(absent)).code == 1
    assert not absent.exists()


def test_the_last_messages_alone(handrail: Command) -> None:
    """With their calls."""
    ran = handrail("sessions", "show", "desk", "--conversation", "--last", "3", "--format", "json")
    items = json.loads(ran.out)["conversation"]
    assert [item.get("tool") or item["role"] for item in items] == ["assistant", "fail", "user", "assistant"]


@pytest.mark.parametrize(
    "words, count", [(["--speaker", "loop"], 6), (["--speaker", "agent"], 1), (["--agent", "clerk"], 1)]
)
def test_one_conversation_alone(words: list[str], count: int, handrail: Command) -> None:
    """Of a speaker, or of an agent or prompt."""
    ran = handrail("sessions", "show", "desk", "--conversation", *words, "--format", "json")
    assert len(json.loads(ran.out)["conversation"]) == count
    last = handrail("sessions", "show", "desk", "--conversation", *words, "--last", "1", "--format", "json")
    assert json.loads(last.out)["conversation"] == json.loads(ran.out)["conversation"][-1:]


def test_no_conversation_is_said(handrail: Command, held: Desk, wording: Wording) -> None:
    """To people; a name that does not exist is an error, before anything is printed."""
    for form in ("table", "json", "html"):
        ran = handrail("sessions", "show", "desk", "--conversation", "--agent", "nobody", "--format", form)
        assert (ran.code, ran.out, ran.err) == (1, "", wording)
    ran = handrail("sessions", "show", "desk", "--conversation", "--speaker", "prompt")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")
    with held.session.child(session_id="empty"):
        ran = handrail("sessions", "show", "empty", "--conversation")
    assert (ran.code, ran.out, ran.err) == (0, wording, "")


def _without_durations(text: str, found: str) -> list[str]:
    """The lines that have a text, without how long calls took."""
    return [re.sub(r"\d\.\d s", "N s", line.strip()) for line in text.splitlines() if found in line]


def test_the_reason_of_an_unknown_outcome_is_whole(
    held: Desk, handrail: Command, terminal: Terminal, wording: Wording
) -> None:
    """A person has to act on it; the other reasons are whole in a pipe, and elsewhere it is said how to see them."""
    for reply, (tool, name) in {"r7": ("doubt", "A-8"), "r8": ("fail", "A-9 " * 90)}.items():
        held.conversation.append({"role": "assistant"}, calls=[ToolCall("c", tool, order(name))], reply=reply)
        held.executor.answer()
        held.conversation.append({"role": "user", "content": "Go on."})
    ran = handrail("sessions", "show", "desk", "--conversation")
    assert _without_durations(ran.out, "A-8") == wording
    assert "A-9 A-9 cannot be paid" in ran.out
    for words in (["--format", "markdown"], ["--format", "html"]):
        ran = handrail("sessions", "show", "desk", "--conversation", *words)
        assert _without_durations(ran.out, "call:r7/c") == wording
        assert ("A-9 A-9 cannot be paid" in ran.out, "… --full" in ran.out) == (False, True)
    assert terminal.run("sessions", "show", "desk", "--conversation", width=80) == 0
    assert "handrail ledger reconcile call:r7/c" in " ".join(" ".join(terminal.lines).split())
    document = json.loads(handrail("sessions", "show", "desk", "--conversation", "--format", "json").out)
    assert [item["effect_key"] for item in document["conversation"] if item["type"] == "call"] == [
        None,
        None,
        "call:r7/c",
        None,
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["--conversation", "--after", "3"],
        ["--conversation", "--type", "x"],
        ["--conversation", "--limit", "3"],
        ["--conversation", "--last", "0"],
        ["--conversation", "--follow", "--format", "html"],
        ["--last", "3"],
        ["--follow"],
        ["--format", "markdown"],
        ["--output", "x"],
        ["--agent", "x"],
    ],
    ids=" ".join,
)
def test_options_that_do_not_fit_are_refused(words: list[str], handrail: Command, wording: Wording) -> None:
    """Nothing is read."""
    ran = handrail("sessions", "show", "desk", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == wording


def test_a_held_session_can_be_read(held: Desk, handrail: Command, wording: Wording) -> None:
    """And it says how to follow it; not to programs."""
    held.ask("And now?")
    ran = handrail("sessions", "show", "desk", "--conversation", "--last", "1")
    assert (ran.code, "And now?" in ran.out, ran.err) == (0, True, "")
    assert ran.out.splitlines()[-1] == wording
    assert "--follow" not in handrail("sessions", "show", "desk", "--conversation", "--format", "json").out


def test_a_session_that_no_process_holds_has_been_followed(handrail: Command, wording: Wording) -> None:
    """Its conversation is what there is; a program reads an object a line."""
    ran = handrail("sessions", "show", "desk", "--conversation", "--follow", "--format", "json")
    assert ran.code == 0
    assert [json.loads(line)["type"] for line in ran.out.splitlines()][:3] == ["session", "message", "message"]
    assert ran.err == ""
    ran = handrail("sessions", "show", "desk", "--conversation", "--follow")
    assert ran.out.splitlines()[-1] == wording


def test_a_run_is_followed(held: Desk, handrail: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the session is released; between two looks at the store it waits."""

    def passed(_seconds: float) -> None:
        held.session.conversation.append({"role": "user", "content": "One more."})
        held.session.close()

    monkeypatch.setattr("handrail.cli.sessions.transcript.command.sleep", passed)
    ran = handrail("sessions", "show", "desk", "--conversation", "--follow", "--last", "1")
    assert ran.code == 0
    assert [line.strip() for line in ran.out.splitlines() if line.startswith("  ")] == ["Done.", "One more."]


def test_ctrl_c_while_it_waits_shows_the_open_calls(
    held: Desk, handrail: Command, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Once, and of the conversation that is shown."""
    held.request(("pay", order("A-3")))
    held.flush()

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("handrail.cli.sessions.transcript.command.sleep", interrupt)
    words = ("sessions", "show", "desk", "--conversation", "--follow", "--last", "1")
    assert handrail(*words).out.splitlines()[1:] == [wording]
    assert handrail(*words, "--agent", "clerk").out.splitlines()[1:] == ["  Hello."]
    assert handrail(*words).code == 130


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_what_is_followed(held: Desk, url: str, wording: Wording) -> None:
    """With the exit code of an interruption, and the calls that are open."""
    held.request(("pay", order("A-3")), text="I pay once more.")
    held.flush()
    words = ("sessions", "show", "desk", "--conversation", "--follow", "--last", "1")
    with subprocess.Popen(
        (*ENTRY, *words), stdout=subprocess.PIPE, text=True, env={**os.environ, "HANDRAIL_STORE": url}
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate()
    assert lines[1] == "  I pay once more.\n"
    assert rest == wording
    assert process.returncode == 130
