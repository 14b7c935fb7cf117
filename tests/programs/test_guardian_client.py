"""The guardian of a process: shared by threads, replaced when it has ended, and not shared with a forked process."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from chaos.programs import Fifo
from handrail.programs.guardian_client import Guardians
from handrail.programs.launch import ProgramEnd
from tests.programs.starts import ended, output_of, supervised


def run(folder: Path, guardians: Guardians, script: str = "print('on')") -> bytes:
    """What a program writes that must succeed."""
    running = supervised(script, folder, guardians)
    running.release()
    output = output_of(running)
    assert ended(running) == ProgramEnd(0)
    return output


def guardian_of(guardians: Guardians) -> int:
    """The pid of the guardian."""
    pid = guardians.pid
    assert pid is not None
    return pid


def is_at_its_end(pid: int) -> bool:
    """Wait until a guardian of this process has ended."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) is not None


def test_programs_of_many_threads_have_one_guardian(tmp_path: Path, guardians: Guardians) -> None:
    """And a supervisor each."""
    outputs = list[bytes]()
    threads = [threading.Thread(target=lambda: outputs.append(run(tmp_path, guardians))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == [b"on\n"] * 8


def test_guardian_that_was_killed_is_replaced_by_the_next_program(tmp_path: Path, guardians: Guardians) -> None:
    """Also if it is killed between the request and the fork, when it has been stopped."""
    assert guardians.pid is None
    run(tmp_path, guardians)
    first = guardian_of(guardians)
    os.kill(first, signal.SIGKILL)
    is_at_its_end(first)
    assert run(tmp_path, guardians) == b"on\n"
    second = guardian_of(guardians)
    assert second != first
    os.kill(second, signal.SIGSTOP)
    os.waitid(os.P_PID, second, os.WSTOPPED)
    killer = threading.Timer(0.1, os.kill, (second, signal.SIGKILL))
    killer.start()
    assert run(tmp_path, guardians) == b"on\n"
    killer.join()
    assert guardian_of(guardians) not in {first, second}


def test_program_goes_on_when_its_guardian_is_killed(tmp_path: Path, fifo: Fifo, guardians: Guardians) -> None:
    """Its supervisor ends it."""
    script = "import time; held = open('fifo', 'wb', buffering=0); held.write(b'on'); time.sleep(600)"
    running = supervised(script, tmp_path, guardians)
    running.release()
    assert fifo.read() == b"on"
    os.kill(guardian_of(guardians), signal.SIGKILL)
    is_at_its_end(guardian_of(guardians))
    assert not running.has_ended()
    assert ended(running).code == -signal.SIGKILL
    assert fifo.read() == b""


def test_guardian_that_is_not_needed_any_more_ends_after_its_last_program(tmp_path: Path, guardians: Guardians) -> None:
    """As that of a process whose user, limits or `umask` have changed: a program inherits them from its guardian."""
    running = supervised("import time; time.sleep(600)", tmp_path, guardians)
    first = guardian_of(guardians)
    before = os.umask(0o027)
    try:
        show = "import os; before = os.umask(0); print(oct(before))"
        assert run(tmp_path, guardians, show) == b"0o27\n"
    finally:
        os.umask(before)
    assert guardian_of(guardians) != first
    assert not running.has_ended()
    ended(running)
    assert is_at_its_end(first)
    assert run(tmp_path, guardians) == b"on\n"


def test_forked_process_has_a_guardian_of_its_own(tmp_path: Path, guardians: Guardians) -> None:
    """It does not end that of its parent."""
    run(tmp_path, guardians)
    first = guardian_of(guardians)
    reading, writing = os.pipe()
    forked = os.fork()
    if not forked:
        try:
            guardians.forked()
            assert guardians.pid is None
            run(tmp_path, guardians)
            os.write(writing, str(guardian_of(guardians) != first).encode())
            guardians.at_exit()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        assert told.read() == b"True"
    os.waitpid(forked, 0)
    run(tmp_path, guardians)
    assert guardian_of(guardians) == first
