"""The Python suite: its tool, its text, and the functions for files."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import AstevalSection, PythonEvaluated, VfsToolsSection
from handrail.contrib.tools import python as files_module
from handrail.contrib.tools import python as section_module
from handrail.contrib.tools.python import unasked
from handrail.errors import DuplicateBindingError, FilesystemError, PromptValidationError, TransactionClosedError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem, PathFilter
from handrail.filesystem.path_filters import excluding
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall
from tests.contrib.suites import SuiteRun
from tests.kit import raises
from tests.wording import Wording

MEMORY = 64 * 1024 * 1024


def test_guidance_says_what_there_is(wording: Wording) -> None:
    """Which Python, which limits, which functions for files."""
    assert AstevalSection().render_body(None) == wording
    small = AstevalSection(files=False, timeout=timedelta(seconds=2.5), memory_bytes=MEMORY)
    assert small.render_body(None) == wording
    assert AstevalSection(read_first=False).render_body(None) == wording


def test_long_output_and_long_values_are_cut() -> None:
    """In the middle; the text says how much is left out."""
    run = SuiteRun(AstevalSection(max_output_characters=100))
    text = run.told("evaluate_python", code="for i in range(1000):\n    print(i)\nlist(range(1000))")
    assert "3,790" in text
    assert len(text) < 500
    value = run.session[PythonEvaluated].latest()
    assert value is not None
    assert (value.left_out, value.value_form) == (3790, "repr")


def test_code_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """Data belongs in files."""
    monkeypatch.setattr(section_module, "MOST_CODE_CHARACTERS", 1000)
    assert SuiteRun(AstevalSection()).refused("evaluate_python", code="#" * 1001) == wording


def test_every_fault_of_a_declaration_is_reported_at_once(wording: Wording, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the cure of each."""
    wrong: Any = {"timeout": 5, "memory_bytes": 1000, "max_output_characters": True}
    with raises(PromptValidationError, wording) as raised:
        AstevalSection(**wrong)
    assert raised.value.section_path == ("python",)
    files = InMemoryFilesystem()
    with pytest.raises(DuplicateBindingError):
        AstevalSection(files, resources={Filesystem: files})
    monkeypatch.setattr(section_module, "find_spec", dict[str, object]().get)
    with pytest.raises(PromptValidationError, match=r"pip install 'handrail\[python\]'"):
        AstevalSection()


class Noted(InMemoryFilesystem):
    """Notes the first look at a file."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = threading.Event()

    def exists(self, path: str) -> bool:
        self.looked.set()
        return super().exists(path)


@pytest.mark.anyio
async def test_cancelled_call_kills_the_code_and_the_next_call_works() -> None:
    """The event loop is not held meanwhile."""
    files = Noted()
    section = AstevalSection(files, timeout=timedelta(minutes=5))
    template = PromptTemplate[None](ns="tests", key="python", sections=[section])
    executor = ToolExecutor(prompt=Prompt(template), session=Session())
    code = "write_text('a.md', 'x')\nexists('a.md')\nwhile True:\n    pass"
    task = asyncio.ensure_future(executor.execute_async(ToolCall("1", "evaluate_python", {"code": code})))
    await asyncio.to_thread(files.looked.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert files.list() == ()
    message = await executor.execute_async(ToolCall("2", "evaluate_python", {"code": "1 + 1"}))
    assert message.result.value == PythonEvaluated("2", "json")


def test_no_monty_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Its reason is for the developer, and not for the model."""
    monkeypatch.setenv("MONTY_BIN", "/bin/false")
    assert SuiteRun(AstevalSection()).refused("evaluate_python", code="1") == wording
    assert len(caplog.records) == 1


class Closed(InMemoryFilesystem):
    """Raises what is not for the code."""

    def exists(self, path: str) -> bool:
        raise TransactionClosedError("evaluate_python", "look at a.md")


def test_what_a_function_raises_that_is_not_for_the_code_ends_the_call(wording: Wording) -> None:
    """Also if the code catches it."""
    run = SuiteRun(AstevalSection(Closed()))
    code = "try:\n    exists('a.md')\nexcept Exception:\n    pass\nwrite_text('a.md', 'x')"
    assert run.refused("evaluate_python", code=code) == wording


def files() -> InMemoryFilesystem:
    """Some files in memory."""
    return InMemoryFilesystem({"a.md": "one\n", "notes/b.md": "two\n", "notes/c.txt": "three\n"})


def over(filesystem: Filesystem | None, **options: Any) -> SuiteRun:
    """A run over the section."""
    return SuiteRun(AstevalSection(filesystem, **options))


def test_functions_read_and_write_the_files_of_the_section(wording: Wording) -> None:
    """All six."""
    filesystem = files()
    run = over(filesystem)
    code = (
        "text = read_text('a.md'); write_text('a.md', text.upper()); write_text('new/d.md', 'four')\n"
        "before = exists('notes/b.md'); two = read_text('notes/b.md'); remove_file('notes/b.md')\n"
        "[before, exists('notes/b.md'), list_files(), list_files('notes'), glob_files('**/*.md')]"
    )
    assert run.told("evaluate_python", code=code) == wording
    assert filesystem.read_text("a.md") == "ONE\n"


def test_code_that_fails_has_changed_nothing(tmp_path: Path, wording: Wording) -> None:
    """In memory and on disk."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a.md").write_text("one\n")
    code = "text = read_text('a.md')\nwrite_text('a.md', 'lost')\nwrite_text('b.md', 'lost')\n1 / 0"
    with HostFilesystem(tmp_path / "root", journal=tmp_path / "journal") as host:
        for filesystem in (host, files()):
            assert over(filesystem).refused("evaluate_python", code=code) == wording
            assert filesystem.read_text("a.md") == "one\n"
            assert not filesystem.exists("b.md")


@pytest.mark.parametrize("code", [
    "read_text('missing.md')", "read_text('../secret')", "read_text('notes')", "write_text('notes', 'x')",
    "write_text('a.md', 'x')", "remove_file('a.md')", "remove_file('notes')", "remove_file('missing.md')",
    "list_files('a.md')", "glob_files('../*')",
])  # fmt: skip
def test_what_a_function_refuses_is_an_exception_in_the_code(code: str, wording: Wording) -> None:
    """Which the model reads, if the code does not catch it."""
    assert over(files()).refused("evaluate_python", code=code) == wording
    caught = f"try:\n    {code}\nexcept OSError as error:\n    found = 'caught'\nfound"
    assert over(files()).told("evaluate_python", code=caught) == wording


def test_file_is_read_before_it_is_written_to(wording: Wording) -> None:
    """By the same code, or by the model; what has changed since must be read again."""
    filesystem = files()
    section = VfsToolsSection(filesystem)
    template = PromptTemplate[None](ns="tests", key="both", sections=[section, AstevalSection()])
    executor = ToolExecutor(prompt=Prompt(template), session=Session())

    def call(number: int, tool: str, **arguments: object) -> str:
        return executor.execute(ToolCall(str(number), tool, arguments)).content

    write = "write_text('a.md', 'new')"
    assert call(1, "evaluate_python", code=write) == wording
    call(2, "read_file", path="a.md")
    assert call(3, "evaluate_python", code=write) == wording
    # What code has written the model has not seen.
    assert call(4, "write_file", path="a.md", content="other") == wording
    assert call(5, "evaluate_python", code=write) == wording
    twice = "text = read_text('a.md')\nwrite_text('./a.md', text + '!')\nwrite_text('a.md', text + '?')"
    assert call(6, "evaluate_python", code=twice) == wording
    assert filesystem.read_text("a.md") == "new?"


def test_without_files_the_functions_are_not_there(wording: Wording) -> None:
    """Or they say that there are none."""
    assert over(None).refused("evaluate_python", code="read_text('a.md')") == wording
    assert over(files(), files=False).refused("evaluate_python", code="read_text('a.md')") == wording


def test_file_that_is_too_large_or_not_text_is_not_read(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """Nor written."""
    monkeypatch.setattr(files_module, "MOST_FILE_BYTES", 1000)
    filesystem = InMemoryFilesystem({"large.txt": "x" * 1001})
    filesystem.write_bytes("image.png", b"\x89PNG")
    run = over(filesystem)
    assert run.refused("evaluate_python", code="read_text('large.txt')") == wording
    assert run.refused("evaluate_python", code="read_text('image.png')") == wording
    assert run.refused("evaluate_python", code="write_text('new.txt', 'é' * 501)") == wording


@pytest.mark.parametrize(
    "code", ["read_text(5)", "read_text()", "exists('a', 'b')", "list_files(folder='.')", "write_text('new.md', b'x')"]
)
def test_arguments_that_do_not_fit_are_an_exception_in_the_code(code: str, wording: Wording) -> None:
    """A path may be a `Path`, too."""
    assert over(files()).refused("evaluate_python", code=code) == wording
    path = "from pathlib import Path\nread_text(path=Path('notes') / 'b.md')"
    assert over(files()).told("evaluate_python", code=path) == 'Value: "two\\n"'


def test_what_is_excluded_does_not_exist_for_code(wording: Wording) -> None:
    """The filter of the filesystem holds for it."""
    filesystem = files().filtered(excluding(("notes",)))
    run = over(filesystem)
    assert run.told("evaluate_python", code="[exists('notes/b.md'), list_files()]") == wording
    assert run.refused("evaluate_python", code="read_text('notes/b.md')") == wording


@pytest.mark.parametrize("path", [".git/config", ".git/hooks/pre-commit", "notes/.git"])
def test_git_does_not_exist_for_code(path: str, wording: Wording) -> None:
    """Also where the section has its own filesystem: it can name programs, which git outside would run."""
    filesystem = InMemoryFilesystem({".git/config": "[core]\n"})
    run = over(filesystem, read_first=False)
    assert run.refused("evaluate_python", code=f"write_text('{path}', 'x')") == wording
    assert run.told("evaluate_python", code="[exists('.git/config'), list_files()]") == wording
    assert filesystem.read_text(".git/config") == "[core]\n"


def test_what_a_person_would_be_asked_about_is_refused() -> None:
    """Of the sets of a filter, those that ask deny here."""
    (notes,) = excluding(("notes",), show_git=True).reading
    shown = unasked(PathFilter(searching=(notes,)))
    assert not files().filtered(shown).exists("notes/b.md")
    held = files().filtered(unasked(PathFilter(holding=(notes,))))
    assert held.exists("notes/b.md")
    with pytest.raises(FilesystemError):
        held.write_text("notes/b.md", "x")


def test_lists_are_bounded(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """Their paths take memory of the agent."""
    monkeypatch.setattr(files_module, "MOST_LISTED", 2)
    assert over(files()).refused("evaluate_python", code="glob_files('**')") == wording
