"""From a command line to an exit code, and what is said when something goes wrong."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
from cyclopts import App
from rich.console import Console

from handrail import cli
from handrail.cli import application, main
from handrail.cli.agents import imports_unsearched
from handrail.cli.sessions import show as sessions
from handrail.store import Store
from tests.cli.desk import ENTRY, SESSION, Command, effect
from tests.store.kit import insert
from tests.wording import Wording


def _commands(app: App, *words: str) -> list[tuple[str, ...]]:
    """The words of all commands under an application."""
    found = [words]
    for name in app:
        if not name.startswith("-"):
            found += _commands(app[name], *words, name)
    return found


COMMANDS = _commands(application.application())


GROUPS = frozenset({("sessions",), ("approvals",), ("ledger",)})


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(handrail: Command, words: Sequence[str], wording: Wording) -> None:
    """The help names the options of the store and the exit codes; it needs no store."""
    ran = handrail(*words, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(" ".join(("Usage: handrail", *words)))
    assert [" ".join(each.split()) for each in ran.out.split("\n\n") if "; 1 " in each] == wording
    has_store = words == ("run",) or len(words) == 2
    assert any(line.startswith("│ --store ") for line in ran.out.splitlines()) == has_store
    assert "\x1b" not in ran.out


@pytest.mark.parametrize("words", [words for words in COMMANDS if words and words not in GROUPS], ids=" ".join)
def test_every_command_has_an_example(
    handrail: Command, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The help shows a command line that can be typed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.agent").touch()
    text = " ".join(handrail(*words, "--help").out.split())
    example = re.split(r" ╭| [|>] ", text.partition("Example: ")[2])[0]
    name, *argv = shlex.split(example)
    assert (name, tuple(argv[: len(words)])) == ("handrail", words)
    application.application().parse_args(argv, exit_on_error=False, print_error=False)


def test_the_help_of_all_commands_is_that_of_each() -> None:
    """No first sentence in the table of the commands is out of date: it is that of the help, which is imported here."""
    listed, imported = io.StringIO(), io.StringIO()
    application.application(()).help_print([], console=Console(file=listed, width=100))
    app = application.application()
    assert all(app[name].help for name in app if not name.startswith("-"))  # which imports them
    app.help_print([], console=Console(file=imported, width=100))
    assert listed.getvalue() == imported.getvalue()


@pytest.mark.parametrize("words", [(), *sorted(GROUPS)])
def test_without_a_command_the_help_is_shown(handrail: Command, words: tuple[str, ...]) -> None:
    """Who does not know what to type is told."""
    assert handrail(*words).out.startswith(f"Usage: {' '.join(('handrail', *words))} COMMAND")


def test_the_version_is_that_of_the_package(handrail: Command) -> None:
    """One number, as the package has it."""
    assert handrail("--version").out == f"{version('handrail')}\n"


def _newer(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("UPDATE handrail_schema SET version = 9999")
    database.commit()
    database.close()


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _other(path: Path) -> None:
    path.write_text("this is a letter, and no database at all\n" * 100)


@pytest.mark.parametrize("harm", [_torn, _other, _newer])
@pytest.mark.parametrize("words", [("sessions", "list"), ("ledger", "list"), ("ledger", "prune", "--yes")])
def test_a_store_that_cannot_be_read_ends_in_one_line(
    handrail: Command, harm: Callable[[Path], object], words: tuple[str, ...], tmp_path: Path
) -> None:
    """Exit code 1; the line names the store, and the file is as it was."""
    path = tmp_path / "desk.db"
    harm(path)
    before = path.read_bytes()
    ran = handrail(*words)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("handrail: ")
    assert "desk.db" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "url", ["mysql://ada:secret@host/db", "desk.db", "sqlite:desk.db", "postgres//ada:secret@host"]
)
def test_a_url_that_names_no_store_is_told_without_its_password(handrail: Command, url: str) -> None:
    """The error says what a URL looks like."""
    ran = handrail("sessions", "list", "--store", url)
    assert (ran.code, ran.out) == (1, "")
    assert "sqlite:///" in ran.err
    assert "secret" not in ran.err


def test_a_password_typed_in_the_wrong_place_is_not_repeated(handrail: Command) -> None:
    """An error about the command line repeats words of it."""
    ran = handrail("sessions", "list", "postgresql://ada:secret@host/db")
    assert ran.code == 2
    assert "secret" not in ran.err


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_quietly(handrail: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the code that shells have for it."""

    def interrupted(*_: object) -> Store:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    monkeypatch.setattr(sessions, "find_session", interrupted)
    ran = handrail("sessions", "show", SESSION, "--entries")
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_a_reader_that_goes_away_ends_the_command_quietly(url: str, store: Store) -> None:
    """As `handrail ledger list | head -1` does."""
    now = store.now()
    for number in range(2000):
        insert(store, effect(f"key {number}", "done", now, partition="many"))
    read, write = os.pipe()
    os.close(read)
    words = (*ENTRY, "ledger", "list", "--format", "json", "--store", url)
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_command_runs_as_a_process(url: str) -> None:
    """Through the entry point, with a stream in an encoding that is not UTF-8."""
    environment = {**os.environ, "HANDRAIL_STORE": url, "PYTHONIOENCODING": "ascii"}
    words = (*ENTRY, "sessions", "show", SESSION, "--entries")
    done = subprocess.run(words, capture_output=True, check=False, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Z\\xfcrich" in done.stdout


def test_without_the_driver_the_command_says_what_to_install() -> None:
    """The extra of the store is not that of the command."""
    program = (
        "import sys; sys.modules['psycopg'] = None; from handrail.cli import main; "
        "sys.exit(main(['ledger', 'list', '--store', 'postgresql://host/desk']))"
    )
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"handrail[postgres]" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words, needless",
    [
        (["--help"], ["pydantic", "asyncio", "handrail.cli.agents", "handrail.cli.sessions", "handrail.cli.ledger"]),
        (["check", "--help"], ["pydantic_ai", "handrail.agents", "handrail.cli.ledger"]),
        (["ledger", "--help"], ["psycopg", "pydantic_ai", "handrail.cli.agents.run"]),
    ],
    ids=str,
)
def test_a_help_loads_nothing_that_it_does_not_use(words: list[str], needless: list[str]) -> None:
    """That of all commands loads no command; that of one, no other command and no framework."""
    program = (
        "import json, sys; from handrail.cli import main; "
        "words, needless = map(json.loads, sys.argv[1:]); main(words); "
        "sys.exit(json.dumps(sorted(sys.modules.keys() & set(needless))))"
    )
    line = (sys.executable, "-c", program, json.dumps(words), json.dumps(needless))
    done = subprocess.run(line, capture_output=True, check=False, text=True, timeout=60)
    assert done.stderr == "[]\n"


def test_the_package_runs_as_a_module(wording: Wording) -> None:
    """`python -m handrail`, where the command is not on the path; a closed standard output is an error there, too."""
    done = subprocess.run((sys.executable, "-m", "handrail", "--version"), capture_output=True, check=True, timeout=60)
    assert done.stdout.decode() == f"{version('handrail')}\n"
    shell = f"{sys.executable} -m handrail --version >&-"
    closed = subprocess.run(shell, shell=True, capture_output=True, check=False, timeout=60)  # noqa: S602 - `>&-`
    assert closed.returncode == 1
    assert closed.stderr.decode() == wording


def test_the_help_names_every_exit_code(handrail: Command, wording: Wording) -> None:
    """Of all commands together."""
    out = handrail("--help").out
    assert [" ".join(each.split()) for each in out.split("\n\n") if "130 " in each] == wording


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.short(1)
def test_a_script_knows_the_commands_and_their_options(handrail: Command, shell: str) -> None:
    """Those of agents too, and it goes to standard output alone."""
    ran = handrail("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    for word in ("run", "check", "new", "sessions", "approvals", "reconcile", "approve-all", "request-limit"):
        assert word in ran.out


def test_bash_completes_with_its_script(handrail: Command, tmp_path: Path) -> None:
    """As it does when a person presses Tab."""
    script = tmp_path / "handrail.bash"
    script.write_text(handrail("completion", "bash").out)
    line = "handrail run desk.agent --approve d"
    program = f"""
        source {script}
        COMP_WORDS=({line}); COMP_CWORD=4; COMP_LINE='{line}'; COMP_POINT={len(line)}
        _handrail; echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(("bash", "-c", program), capture_output=True, check=False, encoding="utf-8", timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "deny-all", "")


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wording: Wording
) -> None:
    """The entry point is there even where cyclopts and rich are not."""
    monkeypatch.setattr(cli, "find_spec", lambda _name: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    assert main(["sessions", "list"]) == 1
    assert capsys.readouterr().err == wording


def test_the_collector_rests_while_a_command_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was imported is set aside for good; where the collector does not run, it is left as it is."""
    monkeypatch.delitem(sys.modules, "pydantic_ai")
    try:
        with imports_unsearched():
            made: list[object] = []
            assert not gc.isenabled()
            with imports_unsearched():
                assert not gc.isenabled()
            assert not gc.isenabled()
            assert is_searched(made)
        assert gc.isenabled()
        assert not is_searched(made)
    finally:
        gc.unfreeze()


def is_searched(made: object) -> bool:
    """Whether the collector searches an object; one that is set aside is not listed."""
    return any(each is made for each in gc.get_objects())
