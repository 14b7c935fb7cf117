"""Sandboxes of Podman: a container that starts with the first command of a run, and stays until its end.

=============================  =======================================================================================
what a container has           by what
=============================  =======================================================================================
no network, no capability      options of Podman; system calls are filtered by its own list
a user of its own              a user namespace, in which the user of the agent is an ordinary one: files of the
                               workspace belong to the agent, whether made inside or outside
a read-only root               the image; `/workspace` has the files, whose `.git` is read-only; those of open
                               databases are masked
`/tmp`, `/dev/shm`             file systems in memory, of limited size
limits                         a control group of memory, processes and processors; resource limits for files
=============================  =======================================================================================

The first process of a container waits for the end of its input, which this process holds: a container ends with the
agent, also by SIGKILL, and Podman removes it then. Commands enter by `podman exec`; what they leave inside is found by
the PID namespace of the first process (`handrail.programs`), also when the folder is opened after a kill.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from handrail.contrib.tools.sandbox.engine import (
    INSIDE,
    UNREADABLE,
    USER,
    WORKSPACE,
    RunningSandbox,
    SandboxWorkspace,
    path_inside,
)
from handrail.errors import SandboxError
from handrail.process import ProcessName, is_running, process_name
from handrail.programs import Process, send
from handrail.redaction import redacted_logger

SECONDS_TO_ANSWER = 60.0
"""How long Podman may take for one command that is not a command of the model."""

_PASSED_ON = ("PATH", "HOME", "TMPDIR", "DBUS_SESSION_BUS_ADDRESS")
_PASSED_ON_BEGINNINGS = ("XDG_", "CONTAINERS_", "CONTAINER_", "STORAGE_", "LC_", "LANG")

_READY = b"ready\n"
# `wait` also waits for processes that commands have left to it, so that none of them stays as a zombie. The shell gives
# a program in the background no input, unless it is another descriptor.
_FIRST = "{ exec cat <&3 >/dev/null & } 3<&0; echo ready; wait"
# When memory runs out, the kernel may end several processes: the first one of the container only after all others.
_COMMAND = '{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null; exec "$@"'
# The first of the user ids of the host that other users of a container have; no account should have them.
_FIRST_HOST_ID = 100_000

_IDS = 65_536
_MOST_FILES = 1024
_LONGEST_REPORT = 2000
_INSTALL = "Install it: apt-get install podman"
_CONTROLLERS = ("memory", "pids", "cpu")
_DELEGATE = (
    "Without root it needs control groups of version 2, of which memory, pids and cpu are delegated to the user: with "
    "systemd, Delegate=memory pids cpu for user@.service. Or run it as the superuser, or use bubblewrap."
)

_LOGGER = redacted_logger("handrail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Podman:
    """Sandboxes in containers of Podman; see `SandboxEngine`.

    Attributes:
        image: the image, which must be there: none is fetched. It needs `/bin/sh`.
        command: Podman, and its general options, such as `("podman", "--runtime", "runc")`.
        network: the network of the container, as `podman run --network` names it. With any but `"none"` commands may
            have effects outside, and the ledger keeps calls as such.
    """

    image: str
    command: tuple[str, ...] = ("podman",)
    network: str = "none"

    name: str = "podman"

    @property
    def reaches_network(self) -> bool:
        """Returns whether commands may have effects outside."""
        return self.network != "none"

    def check(self) -> None:
        """Checks that nothing is missing here, and that limits can be set.

        Raises:
            SandboxError: something is; it says what cures that.
        """
        self._check_image()
        # Without root it warns of limits that it cannot set, and starts the container without them.
        info = run_podman(self.command, "info", "--format", "{{.Host.CgroupControllers}}") if os.getuid() else None
        there = _CONTROLLERS if info is None else info.stdout.strip("[]\n").split()
        missing = [name for name in _CONTROLLERS if name not in there]
        if missing:
            raise SandboxError(self.name, f"it does not limit {', '.join(missing)} here", cure=_DELEGATE)

    def start(self, workspace: SandboxWorkspace) -> RunningSandbox:
        """Starts a container.

        Raises:
            SandboxError: something is missing here; or Podman refuses, as it does for limits that it cannot set.
        """
        self._check_image()
        if ":" in os.fspath(workspace.root):
            cure = "Give a folder without colons in its path."
            raise SandboxError(self.name, f"{os.fspath(workspace.root)!r} cannot be mounted", cure=cure)
        running = RunningPodman(self, workspace)
        return RunningSandbox(running.environment, running.line, running.namespace, running.is_running, running.close)

    def _check_image(self) -> None:
        if sys.platform != "linux":
            raise SandboxError(self.name, "containers are followed on Linux alone", cure="Use a machine with Linux.")
        if shutil.which(self.command[0]) is None:
            raise SandboxError(self.name, f"the program {self.command[0]!r} is not installed", cure=_INSTALL)
        # A name that begins with a dash would be an option.
        if not self.image or self.image.startswith("-"):
            raise SandboxError(self.name, f"{self.image!r} is not the name of an image", cure="Give one as image=.")
        line = " ".join(self.command)
        try:
            answer = run_podman(self.command, "image", "exists", self.image)
        except (OSError, subprocess.SubprocessError) as error:
            raise SandboxError(self.name, f"it does not answer ({error})", cure=f"Try: {line} info") from error
        if answer.returncode == 1:
            raise SandboxError(self.name, f"no image {self.image!r}", cure=f"Fetch it: {line} pull {self.image}")
        if answer.returncode:
            raise SandboxError(self.name, f"it failed: {_report(answer.stderr)}", cure=f"Try: {line} info")


class RunningPodman:
    """A sandbox that is a container; `namespace` is its first process."""

    def __init__(self, engine: Podman, workspace: SandboxWorkspace) -> None:
        self.name: str = f"handrail-{uuid4().hex}"
        self.environment: Mapping[str, str] = podman_environment()
        self._command = (shutil.which(engine.command[0]) or engine.command[0], *engine.command[1:])
        self._lock = threading.Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="handrail-podman-"))
        line = (*self._command, "run", *self._options(engine, workspace), engine.image, "-c", _FIRST)
        with (self._folder / "errors").open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - the developer's own command
                line,
                env=self.environment,
                cwd=self._folder,  # its monitor writes a file `oom` where it is, when memory runs out
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                start_new_session=True,  # so that Ctrl-C in a terminal does not end it before its run
            )
        self.namespace: ProcessName | None = None
        try:
            self.namespace = self._ready(engine)
        except BaseException:
            self.close()
            raise

    def line(self, command: tuple[str, ...], folder: str, written: str) -> tuple[str, ...]:
        """The command of the host that runs a command inside; see `RunningSandbox`."""
        interactive = ("--interactive",) if written else ()
        entered = (*self._command, "exec", *interactive, "--workdir", path_inside(folder), self.name)
        return (*entered, "/bin/sh", "-c", _COMMAND, "sh", *command)

    def is_running(self) -> bool:
        """Returns whether the first process of the container runs."""
        return self.namespace is not None and self._process.poll() is None and is_running(self.namespace)

    def close(self) -> None:
        """Ends the container, and has Podman remove it."""
        with self._lock:
            pipe = self._process.stdin
            if pipe is None or pipe.closed:
                return
            pipe.close()
            first = self.namespace
            # The kernel ends everything else in the container with it.
            if first is not None and first.start.isdecimal():
                send(Process(first.pid, int(first.start)), signal.SIGKILL)
            # Not waited for: after a command that was killed, it waits long for a report that is never written.
            self._process.kill()
            self._process.wait()
            try:
                run_podman(self._command, "rm", "--force", "--ignore", "--time", "0", self.name)
            except (OSError, subprocess.SubprocessError):
                _LOGGER.warning("the container %s could not be removed", self.name, exc_info=True)
            if self._process.stdout is not None:  # pragma: no branch - it was requested
                self._process.stdout.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _options(self, engine: Podman, workspace: SandboxWorkspace) -> Iterator[str]:
        limits = workspace.limits
        yield from ("--rm", "--interactive", "--name", self.name, "--pidfile", os.fspath(self._folder / "pid"))
        yield from ("--pull", "never", "--log-driver", "none")
        yield from ("--network", engine.network, "--hostname", "sandbox", "--http-proxy=false", "--no-healthcheck")
        yield from ("--pid", "private", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all")
        yield from ("--security-opt", "no-new-privileges", "--security-opt", "label=disable")
        masked = (*(f"/proc/{name}" for name in UNREADABLE), *workspace.hidden)
        yield from ("--security-opt", f"mask={':'.join(masked)}")
        yield from _user_options(os.getuid(), os.getgid())
        yield from ("--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes))
        # One more, for the first process.
        yield from ("--pids-limit", str(limits.processes + 1), "--cpus", str(limits.cpus))
        yield from ("--ulimit", f"nofile={_MOST_FILES}:{_MOST_FILES}", "--ulimit", "core=0:0")
        yield from ("--ulimit", f"fsize={limits.file_bytes}:{limits.file_bytes}")
        yield from ("--ulimit", f"nproc={limits.processes + 1}:{limits.processes + 1}")
        yield from ("--tmpfs", f"/tmp:size={limits.tmp_bytes},mode=1777", "--shm-size", f"{limits.tmp_bytes}b")  # noqa: S108
        yield from ("--volume", f"{workspace.root}:{WORKSPACE}:rw,nosuid,nodev", "--workdir", WORKSPACE)
        yield from ("--volume", f"{workspace.git(engine.name)}:{WORKSPACE}/.git:ro,nosuid,nodev")
        for name, value in {**INSIDE, **workspace.environment}.items():
            yield from ("--env", f"{name}={value}")
        yield from ("--entrypoint", "/bin/sh")

    def _ready(self, engine: Podman) -> ProcessName:
        output = self._process.stdout
        with selectors.DefaultSelector() as selector:
            if output is None or not selector.register(output, selectors.EVENT_READ):
                raise AssertionError  # pragma: no cover - it was requested
            # It writes the line as a whole; an end of the output is readable, too.
            is_ready = bool(selector.select(SECONDS_TO_ANSWER)) and output.read(len(_READY)) == _READY
        if is_ready:
            return process_name(int((self._folder / "pid").read_text()))
        self._process.kill()
        self._process.wait()
        report = _report((self._folder / "errors").read_text(errors="replace"))
        line = " ".join(engine.command)
        cure = f"Try: {line} run --rm {engine.image} true; and see the options that were given: {line} info"
        raise SandboxError("podman", f"the container cannot be started: {report or 'no answer'}", cure=cure)


def _user_options(user: int, group: int) -> Iterator[str]:
    if user:
        yield from (f"--userns=keep-id:uid={USER},gid={USER}", "--user", f"{USER}:{USER}")
        return
    for option, own in (("--uidmap", user), ("--gidmap", group)):
        yield from (option, f"0:{_FIRST_HOST_ID}:{USER}", option, f"{USER}:{own}:1")
        yield from (option, f"{USER + 1}:{_FIRST_HOST_ID + USER}:{_IDS - USER - 1}")
    yield from ("--user", f"{USER}:{USER}")


def _report(text: str) -> str:
    return " ".join(text.split())[-_LONGEST_REPORT:]


def podman_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The part of the environment of this process that Podman needs; containers get nothing of it."""
    names = (name for name in environment if name in _PASSED_ON or name.startswith(_PASSED_ON_BEGINNINGS))
    return {name: environment[name] for name in names}


def run_podman(command: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Podman for something short.

    Raises:
        OSError: it cannot be started.
        TimeoutExpired: it does not answer.
    """
    return subprocess.run(  # noqa: S603 - the developer's own command
        (*command, *arguments),
        env=podman_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS_TO_ANSWER,
        check=False,
    )
