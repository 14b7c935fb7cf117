"""Engines on machines that lack something, or whose Podman does not do as it should; both are fakes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from handrail.contrib.tools.sandbox import engine as sandbox_engine
from handrail.contrib.tools.sandbox.engine import Bubblewrap, SandboxEngine, SandboxLimits, SandboxWorkspace
from handrail.contrib.tools.sandbox.podman import Podman
from handrail.contrib.tools.sandbox.section import SandboxSection
from handrail.errors import PromptValidationError, SandboxError
from handrail.filesystem import HostFilesystem
from tests.contrib.tools.sandbox.fake_podman import FakePodman
from tests.kit import raises
from tests.wording import Wording

STARTS = """
shift; while [ "$1" != --pidfile ]; do shift; done; echo $$ > "$2"; echo ready; cat > /dev/null
"""
"""What `podman run` does, as far as this program sees it."""


GIVEN = "echo [cpuset cpu memory pids]"
"""What `podman info` says where all limits can be set."""


def workspace(root: Path) -> SandboxWorkspace:
    """A workspace with limits that are easily found."""
    return SandboxWorkspace(root, SandboxLimits(memory_bytes=1 << 25), {"GIVEN": "yes"})


def fault(engine: SandboxEngine) -> str:
    """What an engine says is missing."""
    with pytest.raises(SandboxError) as raised:
        engine.check()
    return str(raised.value)


def test_what_is_missing_is_named_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """The system, the program that limits, a Podman that fails, and one that cannot be started."""
    (tmp_path / "fails").mkdir()
    fails = FakePodman(tmp_path / "fails", image="echo no storage >&2; exit 125")
    (tmp_path / "podman").write_text("#!/no/such/shell\n")
    (tmp_path / "podman").chmod(0o755)
    engines = [
        Podman(image="a", command=fails.command),
        Podman(image="a", command=(str(tmp_path / "podman"),)),
        Podman(image="", command=fails.command),
        Podman(image="a", command=()),
    ]
    told = [fault(engine) for engine in engines]
    with monkeypatch.context() as patched:
        patched.setattr(sandbox_engine, "LIMITER", "/no/such/prlimit")
        told.append(fault(Bubblewrap()))
        with pytest.raises(SandboxError):
            Bubblewrap().start(workspace(tmp_path))
    monkeypatch.setattr(sys, "platform", "darwin")
    told += [fault(Bubblewrap()), fault(engines[0])]
    assert "\n".join(told).replace(str(tmp_path), "FOLDER") == wording


def test_workspace_whose_path_podman_cannot_mount_is_refused(tmp_path: Path, wording: Wording) -> None:
    """A colon separates the parts of the option."""
    (tmp_path / "a:b").mkdir()
    with raises(SandboxError, wording):
        Podman(image="a", command=FakePodman(tmp_path).command).start(workspace(tmp_path / "a:b"))
    with raises(SandboxError, wording):
        Podman(image="a", command=FakePodman(tmp_path, image="exit 1").command).start(workspace(tmp_path))


def test_processes_below_bubblewrap_have_limits_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `prlimit`; and folders of the machine are read-only."""
    # A system whose folders of libraries are not all links.
    libraries = tmp_path / "lib"
    libraries.mkdir()
    monkeypatch.setattr(sandbox_engine, "_SYSTEM", (str(libraries), "/bin", "/no/such/lib"))
    engine = Bubblewrap(folders=(tmp_path,))
    engine.check()
    running = engine.start(workspace(tmp_path))
    line = running.line(("true",), "notes", has_input=False)
    assert line[0].endswith("/bwrap")
    assert {f"--as={1 << 25}", "--nproc=128", f"--fsize={100 << 20}", "--nofile=1024", "--core=0"} <= {*line}
    for folder in (tmp_path, libraries):
        assert f"--ro-bind {folder} {folder} " in " ".join(line)
    assert "/no/such/lib" not in line
    assert running.environment["GIVEN"] == "yes"
    running.close()
    assert running.is_running()


def test_user_keeps_the_own_id_in_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root Podman maps it; and a container that ends is removed once."""
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    podman = FakePodman(tmp_path, run=STARTS)
    running = Podman(image="a", command=podman.command).start(workspace(tmp_path))
    assert running.is_running()
    running.close()
    running.close()
    assert not running.is_running()
    assert "--userns=keep-id:uid=1000,gid=1000" in podman.asked("run")[0]
    assert len(podman.asked("rm")) == 1


def test_user_for_whom_podman_sets_no_limits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """Without root it warns of them, and starts the container without; it says which it can set."""
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    Podman(image="a", command=FakePodman(tmp_path, info=GIVEN).command).check()
    for given in ("echo []", "echo no answer >&2; exit 1"):
        assert fault(Podman(image="a", command=FakePodman(tmp_path, info=given).command)) == wording


def test_git_of_a_workspace_is_there_and_is_not_a_link(tmp_path: Path, wording: Wording) -> None:
    """An empty folder is made, in whose place a command can put nothing; a link could be replaced."""
    for engine in (Bubblewrap(), Podman(image="a", command=FakePodman(tmp_path, run=STARTS).command)):
        root = tmp_path / f"over-{engine.name}"
        root.mkdir()
        engine.start(workspace(root)).close()
        assert list((root / ".git").iterdir()) == []
        (root / ".git").rmdir()
        (root / ".git").symlink_to("elsewhere")
        with pytest.raises(SandboxError) as raised:
            engine.start(workspace(root))
        assert str(raised.value).partition(": ")[2] == wording
    root = tmp_path / "over-podman"
    with HostFilesystem(root, journal=tmp_path / "journal") as files, pytest.raises(PromptValidationError):
        SandboxSection(files, engine=Bubblewrap())
