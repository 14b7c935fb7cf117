"""The Python suite: its tool and its text."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import AstevalSection, PythonEvaluated
from handrail.contrib.tools import python as section_module
from handrail.errors import PromptValidationError
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall
from tests.contrib.suites import SuiteRun
from tests.contrib.tools.python.test_monty import WatchedEvaluation
from tests.kit import raises
from tests.wording import Wording

MEMORY = 64 * 1024 * 1024


def test_guidance_says_what_there_is(wording: Wording) -> None:
    """Which Python, which limits."""
    assert AstevalSection().render_body(None) == wording
    small = AstevalSection(timeout=timedelta(seconds=2.5), memory_bytes=MEMORY)
    assert small.render_body(None) == wording


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
    """Before Monty is started."""
    monkeypatch.setattr(section_module, "MOST_CODE_CHARACTERS", 1000)
    assert SuiteRun(AstevalSection()).refused("evaluate_python", code="#" * 1001) == wording


def test_every_fault_of_a_declaration_is_reported_at_once(wording: Wording, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the cure of each."""
    wrong: Any = {"timeout": 5, "memory_bytes": 1000, "max_output_characters": True}
    with raises(PromptValidationError, wording) as raised:
        AstevalSection(**wrong)
    assert raised.value.section_path == ("python",)
    monkeypatch.setattr(section_module, "find_spec", dict[str, object]().get)
    with pytest.raises(PromptValidationError, match=r"pip install 'handrail\[python\]'"):
        AstevalSection()


@pytest.mark.anyio
async def test_cancelled_call_kills_the_code_and_the_next_call_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop is not held meanwhile."""
    began = threading.Event()
    monkeypatch.setattr(section_module, "Evaluation", partial(WatchedEvaluation, begun=began.set))
    section = AstevalSection(timeout=timedelta(minutes=5))
    template = PromptTemplate[None](ns="tests", key="python", sections=[section])
    executor = ToolExecutor(prompt=Prompt(template), session=Session())
    code = "while True:\n    pass"
    task = asyncio.ensure_future(executor.execute_async(ToolCall("1", "evaluate_python", {"code": code})))
    await asyncio.to_thread(began.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    message = await executor.execute_async(ToolCall("2", "evaluate_python", {"code": "1 + 1"}))
    assert message.result.value == PythonEvaluated("2", "json")


def test_no_monty_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Its reason is for the developer, and not for the model."""
    monkeypatch.setenv("MONTY_BIN", "/bin/false")
    assert SuiteRun(AstevalSection()).refused("evaluate_python", code="1") == wording
    assert len(caplog.records) == 1
