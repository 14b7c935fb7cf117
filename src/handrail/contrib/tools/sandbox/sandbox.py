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
        self._mounts: tuple[bool, tuple[str, ...]] | None = None
        self._finalizer: weakref.finalize[..., Sandbox] | None = None

    def running(self) -> RunningSandbox:
        """The sandbox, started if it does not run, as it does not at first and after it was lost, or with other mounts.

        Raises:
            SandboxError: it cannot be started.
        """
        with self._lock:
            # A `.git` that was made since the start is not read-only inside, and a database not hidden.
            mounts = self._workspace.git is not None, self._workspace.hidden
            if self._running is None or not self._running.is_running() or mounts != self._mounts:
                self._end()
                self._mounts = mounts
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
