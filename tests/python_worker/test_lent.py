"""The functions that code may call in the agent."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from pathlib import PurePosixPath

import pytest

from handrail.python_worker.channel import Channel, WorkerMessage
from handrail.python_worker.lent import FUNCTIONS, lent_functions
from tests.python_worker.forks import in_fork
from tests.wording import Wording


def asked(name: str, given: Sequence[object], *answers: WorkerMessage) -> tuple[object, list[WorkerMessage]]:
    """What a function returns for arguments, and what the agent was asked."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        agent = Channel(ours.fileno(), ours.fileno(), lambda: 0.0)
        heard: list[WorkerMessage] = []

        def answering() -> None:
            for answer in answers:
                heard.append(agent.receive())
                agent.send(answer)

        thread = threading.Thread(target=answering)
        thread.start()
        try:
            lent = lent_functions(Channel(theirs.fileno(), theirs.fileno(), lambda: 0.0))
            return lent[name](*given), heard
        finally:
            thread.join()


def test_each_function_asks_by_its_name_and_returns_the_answer() -> None:
    """All that there are; paths may be objects, and the folder of a list may be left out."""
    calls: dict[str, tuple[object, ...]] = {
        "read_text": (PurePosixPath("a/b"),),
        "write_text": ("a", "text"),
        "list_files": (),
        "glob_files": ("*",),
        "exists": ("a",),
        "remove_file": ("a",),
    }
    assert list(calls) == list(FUNCTIONS)
    sent = {"read_text": ["a/b"], "list_files": ["."]}
    for name, given in calls.items():
        returned, heard = asked(name, given, {"returns": [name]})
        assert returned == [name]
        assert heard == [{"call": name, "arguments": sent.get(name, list(given))}]


@pytest.mark.parametrize("kind", [FileNotFoundError, PermissionError, OSError, ValueError])
def test_answer_may_be_an_exception(kind: type[Exception]) -> None:
    """Of the types that code can catch by name."""
    with pytest.raises(kind, match="no such thing") as caught:
        asked("exists", ["a"], {"raises": [kind.__name__, "no such thing"]})
    assert type(caught.value) is kind


@pytest.mark.parametrize("given", [b"a", 5, None, ["a"]], ids=lambda value: type(value).__name__)
def test_argument_that_is_not_text_is_refused_without_asking(given: object, wording: Wording) -> None:
    """The message names the function and the parameter."""
    with pytest.raises(TypeError) as raised:
        asked("read_text", [given])
    assert str(raised.value) == wording
    with pytest.raises(TypeError) as raised:
        asked("write_text", ["a", PurePosixPath("b")])
    assert str(raised.value) == wording


def test_process_ends_when_the_agent_does_not_answer() -> None:
    """An exception would be one for the code to catch."""

    def body() -> object:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if not pid:
            ours.close()
            lent_functions(Channel(theirs.fileno(), theirs.fileno(), lambda: 0.0))["exists"]("a")
        theirs.close()
        ours.close()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert in_fork(body) == 3
