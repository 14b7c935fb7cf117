"""From a command line to an exit code: which store it opens, what goes wrong, and the pages in the terminal."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from cyclopts import App, CycloptsError
from rich.console import Console

from handrail import __version__, cli
from handrail.cli import application, main
from handrail.cli.options import StoreOptions
from handrail.cli.pages import installed_pages
from handrail.cli.sessions import show as sessions
from handrail.errors import StoreError, StoreReadOnlyError
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from tests.architecture.sources import ROOT
from tests.cli.desk import ENTRY, SESSION, Command, effect
from tests.kit import raises
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


WITH_STORE = {
    (word,) for word in ("run", "view", "proxy", "serve", "worker", "submit", "undo", "apply", "replay", "backup")
}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(handrail: Command, words: Sequence[str], wording: Wording) -> None:
    """The help names the options of the store and the exit codes; it needs no store."""
    ran = handrail(*words, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(" ".join(("Usage: handrail", *words)))
    assert [" ".join(each.split()) for each in ran.out.split("\n\n") if "; 1 " in each] == wording
    has_store = len(words) == 2 or words in WITH_STORE
    assert any(line.startswith("│ --store ") for line in ran.out.splitlines()) == has_store
    assert "\x1b" not in ran.out


def test_the_help_of_all_commands_is_that_of_each() -> None:
    """No first sentence in the table of the commands is out of date: it is that of the help, which is imported here."""
    listed, imported = io.StringIO(), io.StringIO()
    application.application(()).help_print([], console=Console(file=listed, width=100))
    app = application.application()
    assert all(app[name].help for name in app if not name.startswith("-"))  # which imports them
    app.help_print([], console=Console(file=imported, width=100))
    assert listed.getvalue() == imported.getvalue()


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE handrail_schema SET version = 9999")


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
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert ran.err.startswith("handrail: ")
    assert "desk.db" in ran.err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "url", ["mysql://ada:secret@host/db", "desk.db", "sqlite:desk.db", "postgres//ada:secret@host"]
)
def test_a_url_that_names_no_store_is_told_without_its_password(handrail: Command, url: str) -> None:
    """The error says what a URL looks like; nor is the password of one repeated that is typed in a wrong place."""
    ran = handrail("sessions", "list", "--store", url)
    assert (ran.code, ran.out, "sqlite:///" in ran.err, "secret" in ran.err) == (1, "", True, False)
    ran = handrail("sessions", "list", "postgresql://ada:secret@host/db")
    assert (ran.code, "secret" in ran.err) == (2, False)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_quietly(handrail: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the code that shells have for it."""

    def interrupted(*_: object) -> Store:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    monkeypatch.setattr(sessions, "find_session", interrupted)
    ran = handrail("sessions", "show", SESSION)
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


def test_the_command_runs_as_a_process(url: str, store: Store) -> None:
    """Through the entry point, with a stream in an encoding that is not UTF-8."""
    insert(store, effect("Zürich", "done", store.now()))
    environment = {**os.environ, "HANDRAIL_STORE": url, "PYTHONIOENCODING": "ascii"}
    words = (*ENTRY, "ledger", "list")
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


OTHER_EXTRAS = "mcp mcp_types uvicorn starlette jinja2 markupsafe pydantic_ai ruamel jsonschema psycopg procrastinate"
WITH_CLI_ALONE = dict.fromkeys(("bogus", "sesions list", "--versio", "--versio --store a"), 2) | dict.fromkeys(
    ("proxy --help", "serve --help", "proxy -- server", "serve tools.py:TOOLS", "view --store sqlite:///a.db"), 1
)


@pytest.mark.parametrize("line, code", WITH_CLI_ALONE.items())
def test_without_other_extras_a_command_names_its_own(line: str, code: int, wording: Wording) -> None:
    """A wrong command line needs no other extra, and a command that does says which."""
    program = (
        f"import sys; sys.modules |= dict.fromkeys({OTHER_EXTRAS.split()}); from handrail.cli import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    words = (sys.executable, "-c", program, *line.split())
    done = subprocess.run(words, capture_output=True, check=False, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", wording)


NEEDLESS = [
    (["--help"], ["pydantic", "asyncio", "handrail.cli.agents", "handrail.cli.sessions", "handrail.cli.ledger"]),
    (["check", "--help"], ["pydantic_ai", "handrail.agents", "handrail.cli.ledger"]),
    (["ledger", "--help"], ["psycopg", "pydantic_ai", "handrail.cli.agents.run"]),
]


@pytest.mark.parametrize("words, needless", NEEDLESS, ids=str)
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
    assert done.stdout.decode() == f"{__version__}\n"
    shell = f"{sys.executable} -m handrail --version >&-"
    closed = subprocess.run(shell, shell=True, capture_output=True, check=False, timeout=60)  # noqa: S602 - `>&-`
    assert closed.returncode == 1
    assert closed.stderr.decode() == wording


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wording: Wording
) -> None:
    """The entry point is there even where cyclopts and rich are not."""
    monkeypatch.setattr(cli, "find_spec", lambda _name: None)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    assert main(["sessions", "list"]) == 1
    assert capsys.readouterr().err == wording


def test_a_command_needs_a_store(handrail: Command, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """Nothing is looked for by a guess."""
    monkeypatch.delenv("HANDRAIL_STORE")
    ran = handrail("sessions", "list")
    assert (ran.code, ran.out, ran.err) == (2, "", wording)


def test_the_option_counts_more_than_the_environment(handrail: Command, tmp_path: Path) -> None:
    """Who types a store means it."""
    ran = handrail("sessions", "list", "--store", f"sqlite:///{tmp_path / 'other.db'}")
    assert ran.code == 1
    assert "other.db" in ran.err


def test_a_store_in_memory_cannot_be_seen_from_here(wording: Wording) -> None:
    """It lives in another process, if at all."""
    with raises(CycloptsError, wording):
        StoreOptions(store="memory:").open()


@pytest.mark.parametrize("writing", [True, False])
def test_no_command_makes_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writing: bool, wording: Wording
) -> None:
    """A slip in a path is not an empty store; the error names the path, and the folder that it starts from."""
    monkeypatch.chdir(tmp_path)
    with raises(StoreError, wording):
        StoreOptions(store="sqlite:///my%20desk.db").open(writing=writing)
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_reads_cannot_write(url: str) -> None:
    """Looking at a store leaves it as it is, whatever a command would do."""
    with StoreOptions(store=url).open() as store, pytest.raises(StoreReadOnlyError):
        store.create(SessionRow("new", {}, None, store.now()))
    with StoreOptions(store=url).open(writing=True) as store:
        assert store.create(SessionRow("new", {}, None, store.now()))


def test_a_database_without_tables_is_not_given_any_by_looking_at_it(
    handrail: Command, tmp_path: Path, wording: Wording
) -> None:
    """An empty file may belong to somebody else."""
    path = tmp_path / "empty.db"
    path.touch()
    ran = handrail("sessions", "list", "--store", f"sqlite:///{path}")
    assert (ran.code, ran.out, ran.err) == (1, "", wording)
    assert path.stat().st_size == 0


@pytest.mark.parametrize(
    "words", ["run {} hello", "check {}", "run desk.agent hello --root {}", "run desk.agent hello --rules {}"]
)
def test_a_url_in_the_place_of_a_path_is_shown_by_its_scheme_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    """A path keeps one of its slashes, so that its password would not be recognized."""
    assert (folder / "desk.agent").exists()
    ran = Command("", capsys)(*words.format("postgresql://desk:secret-word@host/desk").split())
    assert (ran.code, ran.out, "(postgresql:...)" in ran.err, "secret-word" in ran.err) == (2, "", True, False)


DOCS = ROOT / "docs"


def test_without_a_name_the_index_lists_all_pages(handrail: Command) -> None:
    """It is the page that lists them, which links to each, and to the indexes of decisions and recipes."""
    ran = handrail("docs")
    assert (ran.code, ran.out) == (0, (DOCS / "README.md").read_text(encoding="utf-8"))
    names = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    apart = ("README.md", "contributing/decisions/0", "recipes/")
    unlinked = {path for path in names if f"]({path})" not in ran.out}
    assert unlinked <= {name for name in names if name.startswith(apart)} - {"recipes/README.md"}


NAMED_PAGES = [
    *(("how-to/write-a-tool", "how-to/write-a-tool.md"), ("docs/../Write-A-Tool.md", ""), ("../README", "")),
    *(("Write-A-Tool.md", "how-to/write-a-tool.md"), ("operate", "")),
    *(
        ("decisions", "contributing/decisions/README.md"),
        ("readme", "../README.md"),
        ("CHANGELOG.md", "../CHANGELOG.md"),
    ),
]


@pytest.mark.parametrize("word, page", NAMED_PAGES)
def test_a_page_is_named_by_its_path_or_its_last_part(handrail: Command, word: str, page: str) -> None:
    """In a pipe it is the file, byte for byte; no word leads out of the folder."""
    ran = handrail("docs", word)
    assert ran.code == (0 if page else 1)
    assert ran.out == ((DOCS / page).read_text(encoding="utf-8") if page else "")


def test_pages_that_are_not_installed_are_missed(
    handrail: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command says where they are; those of a package are found in it."""
    package = tmp_path / "handrail"
    monkeypatch.setattr("handrail.__file__", str(package / "__init__.py"))
    assert installed_pages() == {}
    assert handrail("docs").code == 1
    (package / "docs").mkdir(parents=True)
    (package / "docs" / "README.md").write_text("# Docs\n", encoding="utf-8")
    assert installed_pages()["index"] == package / "docs" / "README.md"
