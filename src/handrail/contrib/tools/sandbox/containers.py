"""The containers of this program: each is labelled with the process that owns it, and removed when that has ended.

==================================================  ==================================================================
what ends                                           what ends and removes the container
==================================================  ==================================================================
the run                                             `RunningSandbox.close`
the agent's process, also by SIGKILL                the container: its first process reads a pipe that the agent holds
the process and Podman's, which removes it          the next opening of the folder kills what runs in it, if a call was
                                                    running; the next sandbox removes it
==================================================  ==================================================================
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from handrail.process_identity import ProcessName, is_running, own_name
from handrail.redaction import redacted_logger

OWNER_LABEL = "handrail.owner"
"""The label of a container that names the process to which it belongs."""

SECONDS_TO_ANSWER = 60.0
"""How long Podman may take for one command that is not a command of the model."""

_PASSED_ON = ("PATH", "HOME", "TMPDIR", "DBUS_SESSION_BUS_ADDRESS")
_PASSED_ON_BEGINNINGS = ("XDG_", "CONTAINERS_", "CONTAINER_", "STORAGE_", "LC_", "LANG")

_LOGGER = redacted_logger("handrail")


def podman_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What Podman itself needs of the environment of this process; nothing of it is passed on into containers."""
    return {
        name: value
        for name, value in environment.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_BEGINNINGS)
    }


def run_podman(command: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Podman for something short.

    Args:
        command: Podman, and its general options.
        arguments: what it is to do.

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


def remove_left_over(command: Sequence[str]) -> tuple[str, ...]:
    """Remove the containers of processes that have ended; returns their ids. What fails is logged, and tried later."""
    try:
        found = run_podman(command, "ps", "--all", "--filter", f"label={OWNER_LABEL}", "--format", "json")
        left = tuple(name for name, owner in _owned(found.stdout) if is_dead(owner))
        if left:
            removed = run_podman(command, "rm", "--force", "--time", "0", *left)
            if removed.returncode:
                _LOGGER.warning("containers of ended processes could not be removed: %s", removed.stderr.strip())
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        _LOGGER.warning("containers of ended processes could not be looked for: %s", error)
        return ()
    return left


def is_dead(owner: ProcessName) -> bool:
    """Whether the owner of a container has ended; false where that is not known."""
    own = own_name(os.getpid())
    if not own.boot or not owner.boot:
        return False
    if own.boot == owner.boot:
        return not is_running(owner)
    # The same boot with another PID namespace: its processes are not visible here.
    return own.boot.partition("/")[0] != owner.boot.partition("/")[0]


def _owned(text: str) -> Iterator[tuple[str, ProcessName]]:
    for container in cast("list[dict[str, Any]]", json.loads(text or "[]")):
        labels = cast("dict[str, str]", container.get("Labels") or {})
        owner = ProcessName.parse(labels.get(OWNER_LABEL, ""))
        if owner is not None:
            yield str(container["Id"]), owner
