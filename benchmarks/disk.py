"""What a call costs that writes one file on disk and fails, in a small tree and in a large one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Bound
from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall

SMALL, LARGE = 10, 10_000

BOUNDS = (Bound(f"write and roll back, {LARGE:,} files", f"write and roll back, {SMALL} files", 2.0),)


@dataclass(frozen=True, slots=True)
class Write:
    """The arguments of the calls."""

    path: str


def _write(params: Write, *, context: ToolContext) -> ToolResult[None]:
    context.resources.get(Filesystem).write_text(params.path, "changed")
    return ToolResult(message="it was not to be", value=None, success=False)


def _calling(folder: Path, files: int, opened: ExitStack) -> Callable[[], object]:
    root = folder / f"tree-{files}"
    for number in range(files):
        path = root / f"area{number % 10}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    tree = opened.enter_context(HostFilesystem(root, journal=folder / f"journal-{files}"))
    tool = Tool[Write, None](name="write", description="Writes, then fails.", handler=_write)
    section = MarkdownSection(title="Tools", key="tools", template="Use them.", tools=[tool])
    template = PromptTemplate(ns="benchmarks", key="disk", sections=[section])
    executor = ToolExecutor(prompt=Prompt(template).bind(resources={Filesystem: tree}), session=Session())

    def call() -> object:
        message = executor.execute(ToolCall("call", "write", '{"path":"area3/file3.txt"}'))
        assert message.content == "it was not to be"
        return message

    return call


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the trees are there for the time of the block."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        yield {f"write and roll back, {files:,} files": _calling(folder, files, opened) for files in (SMALL, LARGE)}
