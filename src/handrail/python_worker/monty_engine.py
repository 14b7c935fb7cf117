"""pydantic-monty: an interpreter of its own, which has no access to the system that code could reach.

Monty runs in a process below this one. Each evaluation gets a new session there. The session ends code that takes too
long or uses too much memory; if its process ends instead, the result says so, and this process ends too.
"""

from __future__ import annotations

from functools import partial

from pydantic_monty import Monty, MontyCrashedError, MontyError, MontyRuntimeError, MontySyntaxError, ResourceLimits

from handrail.python_worker.channel import Channel, WorkerMessage
from handrail.python_worker.confinement import Confine, confine_tree
from handrail.python_worker.lent import lent_functions
from handrail.python_worker.program import EngineSettings, Request
from handrail.python_worker.results import Printed, failure, line_of, success, timed_out

_NAME = "code"
_MOST_SUSPENSIONS = 100_000
"""How often code may call the agent or look a name up there; the agent has a limit of its own."""

_MOST_RECURSION = 500

_OVERTIME = "feed time limit exceeded"


class MontyEngine:
    """Monty, as an `Engine`.

    Attributes:
        confinement: what this process and that of Monty have given up.
    """

    def __init__(self, settings: EngineSettings, confine: Confine = confine_tree) -> None:
        """Confine this process, and start Monty below it.

        Raises:
            Exception: Monty's, if its program cannot be started.
        """
        self._memory_bytes = settings.memory_bytes
        self.confinement: tuple[str, ...] = confine(settings.memory_bytes, (settings.program,))
        self._pool = Monty(binary_path=settings.program, min_processes=1, max_processes=1)
        self._pool.__enter__()  # for the life of this process: nothing would leave the block

    def prepare(self) -> None:
        """Does nothing: Monty keeps its process, and a session takes a fraction of a millisecond."""

    def evaluate(self, request: Request, channel: Channel) -> WorkerMessage:
        """Evaluate code in a new session; see `Engine.evaluate`."""
        printed = Printed(request.characters)
        limits = ResourceLimits(
            max_feed_duration_secs=request.seconds,
            max_memory=self._memory_bytes,
            max_recursion_depth=_MOST_RECURSION,
            max_suspensions=_MOST_SUSPENSIONS,
        )
        lent = dict(lent_functions(channel)) if request.files else {}
        try:
            with self._pool.checkout(script_name=_NAME, limits=limits, os_policy={"sleep": "zero"}) as session:
                value = session.feed_run(request.code, external_lookup=lent, print_callback=partial(_print, printed))
            return success(value, printed, request.characters)
        except (MontyRuntimeError, MontySyntaxError) as error:
            return _failure_of(error, request, printed)
        except MontyCrashedError as error:
            return failure("SystemError", f"the interpreter has ended: {error}", None, printed, ends=True)
        except MontyError as error:
            return failure(type(error).__name__, str(error), None, printed)


def _print(printed: Printed, _stream: str, text: str) -> None:
    printed.write(text)


def _failure_of(error: MontyRuntimeError | MontySyntaxError, request: Request, printed: Printed) -> WorkerMessage:
    kind, _, message = error.display("type-msg").partition(": ")
    if kind == "TimeoutError" and message.startswith(_OVERTIME):
        return timed_out(request.seconds, printed)
    return failure(kind, message, line_of([frame.line for frame in error.traceback()]), printed)
