"""The Python suite through the pipeline: its declaration, its guidance, its results."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import AstevalSection, PythonEvaluated
from handrail.contrib.tools import python as section_module
from handrail.errors import DuplicateBindingError, PromptValidationError, TransactionClosedError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall, ToolInvoked
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


def test_result_is_typed_and_recorded(wording: Wording) -> None:
    """The tool changes state: it is rolled back, and needs no ledger."""
    run = SuiteRun(AstevalSection())
    assert run.told("evaluate_python", code="print('hi')\n[1, 2]") == wording
    event = run.session[ToolInvoked].latest()
    assert event is not None
    assert isinstance(event.result, object)
    assert run.session[PythonEvaluated].latest() == PythonEvaluated("[1, 2]", "json", "hi\n")
    (tool,) = AstevalSection().tools
    assert (tool.name, tool.effect) == ("evaluate_python", "state")


def test_failure_names_error_and_line(wording: Wording) -> None:
    """And shows what was printed before."""
    run = SuiteRun(AstevalSection())
    code = "print('before')\ndef half(x):\n    return x / 0\n\nhalf(4)"
    assert run.refused("evaluate_python", code=code) == wording
    assert run.refused("evaluate_python", code="x = = 5").partition(":")[0] == wording


def test_nothing_stays_for_the_next_call() -> None:
    """Neither names nor values."""
    run = SuiteRun(AstevalSection())
    run.told("evaluate_python", code="secret = 5")
    assert run.refused("evaluate_python", code="secret").startswith("NameError")


def test_code_is_stopped_by_time_and_memory_and_the_next_call_works(wording: Wording) -> None:
    """The limits of the section."""
    run = SuiteRun(AstevalSection(timeout=timedelta(milliseconds=200), memory_bytes=MEMORY))
    assert run.refused("evaluate_python", code="while True:\n    pass") == wording
    assert run.refused("evaluate_python", code="[0] * 10**9").partition(":")[0] == wording
    assert run.told("evaluate_python", code="1 + 1") == wording


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


def test_monty_that_cannot_be_started_is_logged(
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
