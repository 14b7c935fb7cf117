"""The Python suite through the pipeline: its declaration, its guidance, its results."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.clock import SYSTEM_CLOCK
from handrail.contrib.tools import AstevalSection, PythonEvaluated
from handrail.contrib.tools.python import engines
from handrail.contrib.tools.python import handler as handler_module
from handrail.contrib.tools.python.handler import Evaluation, PythonSettings
from handrail.contrib.tools.python.section import python_tool
from handrail.contrib.tools.python.workers import WORKERS, PythonWorkers, WorkerKind, WorkerLostError
from handrail.errors import DuplicateBindingError, PromptValidationError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.programs.process_tree import look
from handrail.prompt import Prompt, PromptTemplate, Section
from handrail.runtime import Session, ToolCall, ToolInvoked
from tests.contrib.suites import SuiteRun
from tests.contrib.tools.python import misbehaving
from tests.wording import Wording

BOTH = pytest.mark.parametrize("engine", ["monty", "asteval"])
MEMORY = 64 * 1024 * 1024


@BOTH
def test_guidance_says_what_there_is(engine: Any, wording: Wording) -> None:
    """Which Python, which limits, which functions for files."""
    assert AstevalSection(engine=engine).render_body(None) == wording
    small = AstevalSection(engine=engine, files=False, timeout=timedelta(seconds=2.5), memory_bytes=MEMORY)
    assert small.render_body(None) == wording
    assert AstevalSection(engine=engine, read_first=False).render_body(None) == wording


@BOTH
def test_result_is_typed_and_recorded(engine: Any, wording: Wording) -> None:
    """The tool changes state: it is rolled back, and needs no ledger."""
    run = SuiteRun(AstevalSection(engine=engine))
    assert run.told("evaluate_python", code="print('hi')\n[1, 2]") == wording
    event = run.session[ToolInvoked].latest()
    assert event is not None
    assert isinstance(event.result, object)
    assert run.session[PythonEvaluated].latest() == PythonEvaluated("[1, 2]", "json", "hi\n")
    (tool,) = AstevalSection(engine=engine).tools
    assert (tool.name, tool.effect) == ("evaluate_python", "state")


@BOTH
def test_failure_names_error_and_line(engine: Any, wording: Wording) -> None:
    """And shows what was printed before."""
    run = SuiteRun(AstevalSection(engine=engine))
    code = "print('before')\ndef half(x):\n    return x / 0\n\nhalf(4)"
    assert run.refused("evaluate_python", code=code) == wording
    assert run.refused("evaluate_python", code="x = = 5").partition(":")[0] == wording


@BOTH
def test_nothing_stays_for_the_next_call(engine: Any) -> None:
    """Neither names nor values."""
    run = SuiteRun(AstevalSection(engine=engine))
    run.told("evaluate_python", code="secret = 5")
    assert run.refused("evaluate_python", code="secret").startswith("NameError")


@BOTH
def test_code_is_stopped_by_time_and_memory_and_the_next_call_works(engine: Any, wording: Wording) -> None:
    """The limits of the section."""
    run = SuiteRun(AstevalSection(engine=engine, timeout=timedelta(milliseconds=200), memory_bytes=MEMORY))
    assert run.refused("evaluate_python", code="while True:\n    pass") == wording
    assert run.refused("evaluate_python", code="[0] * 10**9").partition(":")[0] == wording
    assert run.told("evaluate_python", code="1 + 1") == wording


@BOTH
def test_long_output_and_long_values_are_cut(engine: Any) -> None:
    """In the middle; the text says how much is left out."""
    run = SuiteRun(AstevalSection(engine=engine, max_output_characters=100))
    text = run.told("evaluate_python", code="for i in range(1000):\n    print(i)\nlist(range(1000))")
    assert "3,790" in text
    assert len(text) < 500
    value = run.session[PythonEvaluated].latest()
    assert value is not None
    assert (value.left_out, value.value_form) == (3790, "repr")


def test_code_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """Data belongs in files."""
    monkeypatch.setattr(handler_module, "MOST_CODE_CHARACTERS", 1000)
    assert SuiteRun(AstevalSection()).refused("evaluate_python", code="#" * 1001) == wording


def test_every_fault_of_a_declaration_is_reported_at_once(wording: Wording, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the cure of each."""
    wrong: Any = {"engine": "cpython", "timeout": 5, "memory_bytes": 1000, "max_output_characters": True}
    with pytest.raises(PromptValidationError) as raised:
        AstevalSection(**wrong)
    assert str(raised.value) == wording
    assert raised.value.section_path == ("python",)
    files = InMemoryFilesystem()
    with pytest.raises(DuplicateBindingError):
        AstevalSection(files, resources={Filesystem: files})
    monkeypatch.setattr(engines, "find_spec", {"asteval": 1}.get)
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


@BOTH
@pytest.mark.anyio
async def test_cancelled_call_kills_the_code_and_the_next_call_works(engine: Any) -> None:
    """The event loop is not held meanwhile."""
    files = Noted()
    section = AstevalSection(files, engine=engine, timeout=timedelta(minutes=5))
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


def suite(workers: PythonWorkers, *, seconds: float = 30.0) -> SuiteRun:
    """A run over the tool, with other workers than those of this process."""
    settings = PythonSettings(WorkerKind("monty", MEMORY), seconds, 1000, files=True, read_first=True)
    return SuiteRun(Section(title="Python", key="python", tools=[python_tool(settings, workers)]))


@pytest.mark.parametrize(
    "script",
    [
        misbehaving.ENDS,
        misbehaving.ENDS_LATER,
        misbehaving.sending({"result": 5}),
        misbehaving.sending({"result": {"value": 5}}),
        misbehaving.sending({"call": "open", "arguments": ["a"]}),
        misbehaving.sending({"call": "exists", "arguments": [5]}),
        misbehaving.sending({"call": "exists", "arguments": ["a", "b"]}),
        misbehaving.sending({"call": "exists", "arguments": 5}),
    ],
    ids=["ends", "ends later", "no result", "a wrong result", "no function", "no text", "too many", "no list"],
)
def test_worker_that_misbehaves_fails_the_call_and_is_not_kept(script: str, wording: Wording) -> None:
    """The model reads that the interpreter was lost."""
    workers = misbehaving.workers(script)
    run = suite(workers)
    for _ in range(2):
        assert run.refused("evaluate_python", code="1") == wording
    other = workers.take(WorkerKind("monty", MEMORY), SYSTEM_CLOCK)
    assert other.waits() or script == misbehaving.ENDS
    other.close()


def test_worker_that_does_not_answer_is_killed() -> None:
    """As the code is, that takes too long."""
    run = suite(misbehaving.workers(misbehaving.SILENT), seconds=-0.9)
    assert run.refused("evaluate_python", code="1").startswith("TimeoutError")


def test_worker_that_cannot_be_started_is_logged(caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """Its reason is for the developer, and not for the model."""
    run = suite(misbehaving.workers("import missing_module"))
    assert run.refused("evaluate_python", code="1") == wording
    assert [record.getMessage() for record in caplog.records] == wording


def test_evaluation_that_was_stopped_before_it_began_uses_no_worker() -> None:
    """The worker is closed, because it is in doubt."""
    workers = PythonWorkers()
    evaluation = Evaluation(workers, WorkerKind("monty", MEMORY), SYSTEM_CLOCK)
    evaluation.stop()
    nothing: Any = None
    with pytest.raises(WorkerLostError):
        evaluation.carry_out(nothing, nothing)
    workers.close()


def test_sections_of_one_kind_share_the_workers_of_the_process() -> None:
    """So that a section that is made for each run need not wait for a start."""
    SuiteRun(AstevalSection(memory_bytes=MEMORY)).told("evaluate_python", code="1")
    worker = WORKERS.take(WorkerKind("monty", MEMORY), SYSTEM_CLOCK)
    WORKERS.put(worker)
    SuiteRun(AstevalSection(memory_bytes=MEMORY)).told("evaluate_python", code="1")
    assert WORKERS.take(WorkerKind("monty", MEMORY), SYSTEM_CLOCK) is worker
    worker.close()
    assert look(worker.pid) is None
