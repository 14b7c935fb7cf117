"""The sandbox of one run: it starts with the first command, and is closed when the run ends."""

from __future__ import annotations

import threading
import weakref

from handrail.contrib.tools.sandbox.engine import RunningSandbox, SandboxEngine, SandboxWorkspace
from handrail.filesystem import HostFilesystem


class Sandbox:
    """A sandbox that is started when it is needed; a resource of the run, which closes it.

    Attributes:
        filesystem: the workspace, which rolls back what commands change there.
    """

    def __init__(self, engine: SandboxEngine, filesystem: HostFilesystem, workspace: SandboxWorkspace) -> None:
        """Prepare one over the root of a filesystem; nothing is started."""
        self.filesystem: HostFilesystem = filesystem
        self._engine = engine
        self._workspace = workspace
        self._lock = threading.Lock()
        self._running: RunningSandbox | None = None
        self._had_git = False
        self._finalizer: weakref.finalize[..., Sandbox] | None = None

    def running(self) -> RunningSandbox:
        """The sandbox, started if it does not run, as it does not at first, after it was lost, and with another `.git`.

        Raises:
            SandboxError: it cannot be started.
        """
        with self._lock:
            has_git = self._workspace.git is not None
            # What was made as `.git` since the start is not read-only inside.
            if self._running is None or not self._running.is_running() or has_git != self._had_git:
                self._end()
                self._had_git = has_git
                self._running = running = self._engine.start(self._workspace)
                # Also at the exit of the process, if the run is never closed.
                self._finalizer = weakref.finalize(self, running.close)
            return self._running

    def close(self) -> None:
        """End the sandbox; a later command starts another one."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        self._running = None
        if self._finalizer is not None:
            self._finalizer()
