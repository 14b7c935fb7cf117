"""The handler of the Python suite: makes an evaluation of a model's request, and a result of its end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from handrail.clock import Clock
from handrail.contrib.tools.python.evaluation import EvaluatePython, PythonEvaluated, PythonFault
from handrail.contrib.tools.python.files import LentFiles, files_of
from handrail.contrib.tools.python.workers import (
    FunctionAnswer,
    PythonWorker,
    PythonWorkers,
    WorkerKind,
    WorkerLostError,
    WorkerOvertimeError,
    WorkerStartError,
)
from handrail.errors import ToolValidationError
from handrail.prompt import ToolContext, ToolResult
from handrail.python_worker.program import Request
from handrail.redaction import redacted_logger
from handrail.runtime.execution import run_stoppable

_log = redacted_logger("handrail")

MOST_CODE_CHARACTERS = 100_000
"""How long code may be."""

DEFAULT_TIMEOUT = timedelta(seconds=10)
"""How long code may take, unless the section says otherwise."""

DEFAULT_MEMORY_BYTES = 256 * 1024 * 1024
"""How much memory code may use, unless the section says otherwise: 256 MiB."""

DEFAULT_CHARACTERS = 20_000
"""How much of what code prints is returned, and of its value, unless the section says otherwise."""

DEFAULT_KIND = WorkerKind("monty", DEFAULT_MEMORY_BYTES)
"""What evaluates code, unless the section says otherwise."""

_UNDONE = " The files that it has changed are as they were before."


@dataclass(frozen=True, slots=True)
class PythonSettings:
    """How code is evaluated.

    Attributes:
        kind: the workers that evaluate it.
        seconds: how long it may take.
        most_characters: how much of what it prints is returned, and of its value.
        files: whether it may call the functions for files.
        read_first: whether it must read a file before it writes to it.
    """

    kind: WorkerKind = DEFAULT_KIND
    seconds: float = DEFAULT_TIMEOUT.total_seconds()
    most_characters: int = DEFAULT_CHARACTERS
    files: bool = True
    read_first: bool = True


@dataclass(frozen=True, slots=True)
class PythonHandler:
    """Evaluates code.

    Attributes:
        settings: how.
        workers: where the processes come from.
    """

    settings: PythonSettings
    workers: PythonWorkers

    async def run(self, params: EvaluatePython, *, context: ToolContext) -> ToolResult[PythonEvaluated]:
        """Evaluate code on a thread of its own; when the call is cancelled the worker is killed, and waited for."""
        # Made before the thread starts, so that a cancellation finds it even if no worker has been taken yet.
        evaluation = Evaluation(self.workers, self.settings.kind, context.clock)
        # The call is rolled back when this function returns, so no function for files must run after that.
        return await run_stoppable(lambda: self._carry_out(params, context, evaluation), evaluation.stop)

    def _carry_out(
        self, params: EvaluatePython, context: ToolContext, evaluation: Evaluation
    ) -> ToolResult[PythonEvaluated]:
        settings = self.settings
        if len(params.code) > MOST_CODE_CHARACTERS:
            raise ToolValidationError(
                f"$.code: it has {len(params.code):,} characters, and {MOST_CODE_CHARACTERS:,} can be evaluated. Give "
                "less code, and read data from files."
            )
        files = LentFiles(files_of(context) if settings.files else None, context, settings.read_first)
        request = Request(params.code, settings.seconds, settings.most_characters, settings.files)
        try:
            evaluated = evaluation.carry_out(request, files)
        except WorkerStartError as error:
            # The environment is at fault, which only the developer can change.
            _log.error("no Python worker can be started: %s", error)
            raise ToolValidationError("Python cannot be evaluated here. Do without it.") from error
        except WorkerOvertimeError:
            fault = PythonFault("TimeoutError", f"it has taken more than {settings.seconds:g} s and was stopped")
            evaluated = PythonEvaluated(changed=files.changed, fault=fault)
        except WorkerLostError as error:
            _log.warning("a Python worker was lost: %s", error)
            fault = PythonFault("SystemError", f"the interpreter was lost: {error}")
            evaluated = PythonEvaluated(changed=files.changed, fault=fault)
        if evaluated.fault is None:
            return ToolResult.ok(evaluated)
        undone = _UNDONE if evaluated.changed else ""
        return ToolResult.error(f"{evaluated.fault.sentence}{undone}", evaluated)


class Evaluation:
    """One evaluation, by a worker; any thread may stop it."""

    __slots__ = ("_clock", "_kind", "_lock", "_stopped", "_worker", "_workers")

    def __init__(self, workers: PythonWorkers, kind: WorkerKind, clock: Clock) -> None:
        """Prepare it; a worker is taken when it is carried out."""
        self._workers = workers
        self._kind = kind
        self._clock = clock
        self._lock = threading.Lock()
        self._worker: PythonWorker | None = None
        self._stopped = False

    def stop(self) -> None:
        """Kill the worker, or prevent its use; does not wait."""
        with self._lock:
            self._stopped = True
            if self._worker is not None:
                self._worker.kill()

    def carry_out(self, request: Request, files: LentFiles) -> PythonEvaluated:
        """Evaluate code; a worker is kept for others only after a result that is well formed.

        Raises:
            WorkerStartError: no worker can be started.
            WorkerLostError: there is no result.
            ModelVisibleError: what a function for files raised that is not for the code.
        """
        worker = self._workers.take(self._kind, self._clock)
        is_sound = False
        try:
            # After this a stop finds the worker; a stop before it is found here.
            with self._lock:
                self._worker = worker
                if self._stopped:
                    raise WorkerLostError("it was stopped")
            result = worker.evaluate(request, self._answering(files))
            evaluated = _evaluated(result, files, request)
            is_sound = not result.get("ends")
            return evaluated
        finally:
            # Under the lock: a stop must not kill a worker that another evaluation has taken.
            with self._lock:
                self._worker = None
                is_sound = is_sound and not self._stopped
            if is_sound:
                self._workers.put(worker)
            else:
                worker.close()

    @staticmethod
    def _answering(files: LentFiles) -> FunctionAnswer:
        def answer(name: str, arguments: object) -> dict[str, object]:
            try:
                return files.answer(name, arguments)
            except ValueError as error:
                raise WorkerLostError(str(error)) from error

        return answer


def _evaluated(result: Mapping[str, Any], files: LentFiles, request: Request) -> PythonEvaluated:
    try:
        return PythonEvaluated.of(result, files.changed, request.characters)
    except ValueError as error:
        raise WorkerLostError(str(error)) from error
