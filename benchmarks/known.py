"""What `ReadBeforeWritePolicy` costs: what is stored of the files that were read, and how much longer a write takes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Bound, Limit
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import VfsToolsSection
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall
from handrail.store import Store

READ, OTHERS, DEPTH = 3_000, 1_000, 100

STORED = f"{READ:,} files read, what the store takes"
OPENED = f"{READ:,} files read, open the session"
FORKED = f"{READ:,} files read, fork the session"
LIMITS = (Limit(STORED, 5.0, "MB"), Limit(OPENED, 20.0, "ms"), Limit(FORKED, 20.0, "ms"))

WRITE = f"write_file, depth {DEPTH}, {OTHERS:,} other files"
BARE = f"{WRITE}, without the policy"
BOUNDS = (Bound(WRITE, BARE, 1.1),)

_SESSION = "read"


def _call(executor: ToolExecutor, number: int, name: str, **arguments: object) -> None:
    message = executor.execute(ToolCall(f"call-{number}", name, arguments), reply=f"reply-{number}")
    assert message.success, message.content


def _executor(session: Session, filesystem: Filesystem, *, policy: bool = True) -> ToolExecutor:
    section = VfsToolsSection(filesystem) if policy else VfsToolsSection(filesystem, policies=())
    return ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="benchmarks", key="known", sections=[section])), session=session
    )


def _paths(files: int) -> list[str]:
    return [f"src/area{number % 30}/module_{number}.py" for number in range(files)]


def _read_all(url: str) -> None:
    """A stored session in which many files have been read, each by a call of its own."""
    files = {path: f"value = {path!r}\n" for path in _paths(READ)}
    with store.open(url, durability="normal") as kept, Session.open(kept, _SESSION) as session:
        executor = _executor(session, InMemoryFilesystem(files))
        for number, path in enumerate(files):
            _call(executor, number, "read_file", path=path)


def _opening(kept: Store) -> Callable[[], object]:
    def opened() -> object:
        with Session.open(kept, _SESSION) as session:
            return session

    return opened


def _forking(session: Session) -> Callable[[], object]:
    numbers = count()

    def forked() -> object:
        with session.fork(session_id=f"fork-{next(numbers)}") as fork:
            return fork

    return forked


@contextmanager
def stored_cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured of the store, by name; the database is there for the time of the block."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        for name in ("opened", "forked"):
            _read_all(f"sqlite:///{folder}/{name}.db")
        stored = (folder / "opened.db").stat().st_size / 1e6
        kept = opened.enter_context(store.open(f"sqlite:///{folder}/opened.db", durability="normal"))
        forked = opened.enter_context(store.open(f"sqlite:///{folder}/forked.db", durability="normal"))
        session = opened.enter_context(Session.open(forked, _SESSION))
        yield {STORED: lambda: stored, OPENED: _opening(kept), FORKED: _forking(session)}


def _writing(root: Path, journal: Path, opened: ExitStack, *, policy: bool) -> Callable[[], object]:
    """Replaces one deep file again and again, in a session that has read many others."""
    files: Mapping[str, str] = dict.fromkeys(_paths(OTHERS), "value = 1\n")
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    tree = opened.enter_context(HostFilesystem(root, journal=journal))
    executor = _executor(Session(), tree, policy=policy)
    numbers = count()
    deep = "/".join(["folder"] * DEPTH) + "/deep.py"
    _call(executor, next(numbers), "write_file", path=deep, content="value = 1\n")
    for path in files:
        _call(executor, next(numbers), "read_file", path=path)

    def write() -> object:
        number = next(numbers)
        _call(executor, number, "write_file", path=deep, content=f"value = {number}\n")
        return number

    return write


@contextmanager
def write_cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured of writes, by name; the trees are there for the time of the block."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        yield {
            BARE: _writing(folder / "bare", folder / "bare-journal", opened, policy=False),
            WRITE: _writing(folder / "held", folder / "held-journal", opened, policy=True),
        }
