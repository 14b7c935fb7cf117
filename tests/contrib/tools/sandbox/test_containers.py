"""Sandboxes: their declaration, engines on machines that lack something, containers, and calls that are killed."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chaos.sandboxes import TARGETS, play
from handrail.contrib.tools import Bubblewrap, Podman, PodmanSandboxSection, SandboxLimits, SandboxSection
from handrail.contrib.tools.sandbox import engine as sandbox_engine
from handrail.contrib.tools.sandbox.engine import RunningSandbox, SandboxEngine, SandboxWorkspace
from handrail.contrib.tools.sandbox.podman import podman_environment
from handrail.errors import PromptValidationError, SandboxError
from handrail.filesystem import HostFilesystem
from handrail.prompt import External, ReadBeforeWritePolicy
from tests.contrib.suites import SuiteRun
from tests.contrib.tools.sandbox.grounds import Ground, short_limits
from tests.contrib.tools.sandbox.podman_store import IMAGE, podman_command
from tests.extent import FULL
from tests.kit import raises
from tests.wording import Wording


def test_podman_leaves_no_file_where_the_agent_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The monitor of a container writes a file where it was started when memory runs out."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with Ground("podman", tmp_path, short_limits(20.0)) as ground:
        before = ground.picture()
        # On a busy machine the kernel ends the shell too, and the command has failed.
        ended = ground.call("(head -c 300000000 /dev/zero | tail -c 200000000); true")
        assert "killed" in ended.content.casefold()
        assert ground.picture() == before
    assert list(here.iterdir()) == []


def test_commands_end_before_their_container_when_memory_runs_out(tmp_path: Path) -> None:
    """The kernel ends the process with the highest of these scores, and the next one if that is not enough."""
    with Ground("podman", tmp_path, short_limits(20.0)) as ground:
        first, own = ground.told("cat /proc/1/oom_score_adj /proc/self/oom_score_adj").split()
        assert int(first) <= 0
        assert own == "1000"


def test_podman_is_given_what_it_needs_of_the_environment() -> None:
    """And no key."""
    given = {"PATH": "/bin", "XDG_RUNTIME_DIR": "/run", "LC_ALL": "C", "CONTAINERS_CONF": "x", "OPENAI_API_KEY": "y"}
    assert podman_environment(given) == {name: value for name, value in given.items() if name != "OPENAI_API_KEY"}


_SHORT = "agent over podman", "agent over bubblewrap", "podman exec"


@pytest.mark.parametrize("name", TARGETS if FULL else _SHORT)
@pytest.mark.short(1)
def test_call_that_is_killed_is_undone_and_the_next_one_works(name: str, tmp_path: Path) -> None:
    """The agent, a part of the sandbox, or the command: nothing of it runs on, and no container is left."""
    assert play(name, tmp_path).faults == ()


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


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """The system, the program that limits, a Podman that fails, and one that cannot be started."""
    (tmp_path / "fails").mkdir()
    fails = FakePodman(tmp_path / "fails", image="echo no storage >&2; exit 125")
    (tmp_path / "podman").write_text("#!/no/such/shell\n")
    (tmp_path / "podman").chmod(0o755)
    engines = [
        Podman(image="a", command=fails.command), Podman(image="a", command=(str(tmp_path / "podman"),)),
        Podman(image="", command=fails.command),
    ]  # fmt: skip
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
    line = running.line(("true",), "notes", "")
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


def test_user_without_limits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
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


_PODMAN = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$1" in
{cases}
esac
"""


class FakePodman:
    """A program of the host; what it is asked is kept.

    Attributes:
        command: the command that names it.
    """

    def __init__(self, folder: Path, **cases: str) -> None:
        """Make it: `ps="echo hello"` is what the shell runs for `podman ps`; it succeeds in all else."""
        self._asked = folder / "asked"
        program = folder / "podman"
        lines = "\n".join(f"{name}) {script};;" for name, script in cases.items())
        program.write_text(_PODMAN.format(folder=folder, cases=lines))
        program.chmod(0o755)
        self.command = (str(program),)

    def asked(self, name: str) -> list[list[str]]:
        """The arguments behind a command of Podman, for each time that it was given."""
        lines = self._asked.read_text().splitlines() if self._asked.exists() else []
        return [line.split()[1:] for line in lines if line.split()[0] == name]


@pytest.fixture
def files(tmp_path: Path) -> Generator[HostFilesystem]:
    """A workspace."""
    (tmp_path / "root").mkdir()
    with HostFilesystem(tmp_path / "root", journal=tmp_path / "journal", durability="normal") as files:
        yield files


def test_section_brings_the_tool_and_the_file_tools(files: HostFilesystem, wording: Wording) -> None:
    """A file must be read before it is written to."""
    section = SandboxSection(files, engine=Bubblewrap())
    assert section.render_body(None) == wording
    (below,) = section.children
    assert [type(policy) for policy in below.policies] == [ReadBeforeWritePolicy]
    (files.root / "a.txt").write_text("one")
    run = SuiteRun(section)
    with run.executor:
        assert not run.call("write_file", path="a.txt", content="two").success
        run.told("shell_execute", command=["cat", "a.txt"])
        run.told("read_file", path="a.txt")
        run.told("write_file", path="a.txt", content="two")
        assert run.told("shell_execute", command="cat a.txt") == "two"
    bare = SandboxSection(files, engine=Bubblewrap(), file_tools=False)
    assert (bare.children, [tool.name for tool in bare.tools]) == ((), ["shell_execute"])


@pytest.mark.parametrize("fields", [
    {"limits": SandboxLimits(memory_bytes=1, processes=True, cpus=0.0, timeout=timedelta(0))},
    {"environment": {"A=": "b"}},
    {"engine": Bubblewrap(program="bwrap-of-no-machine")}, {"engine": Bubblewrap(folders=(Path("nowhere"),))},
    {"engine": Podman(image="localhost/none:1", command=("podman-of-no-machine",))},
    {"engine": Podman(image="--privileged")},
], ids=["limits", "types", "no program", "no folder", "no podman", "no name"])  # fmt: skip
def test_faults_are_named_with_their_cure(files: HostFilesystem, fields: dict[str, Any], wording: Wording) -> None:
    """All of them at once."""
    given: dict[str, Any] = {"engine": Bubblewrap(), **fields}
    with raises(PromptValidationError, wording):
        SandboxSection(files, **given)


def test_image_must_be_there(files: HostFilesystem) -> None:
    """It is not fetched; the message has the command that does."""
    with pytest.raises(PromptValidationError) as caught:
        PodmanSandboxSection(files, image="localhost/none:1", podman=podman_command())
    assert str(caught.value).endswith(" pull localhost/none:1")


def test_effects_are_outside_only_with_a_network(files: HostFilesystem, wording: Wording) -> None:
    """Without one, all that a command changes is rolled back."""
    quiet = PodmanSandboxSection(files, image=IMAGE, podman=podman_command())
    linked = PodmanSandboxSection(files, image=IMAGE, podman=podman_command(), network="slirp4netns")
    assert quiet.tools[0].effect == "state"
    assert isinstance(linked.tools[0].external, External)
    without = quiet.render_body(None).splitlines()
    assert [line for line in linked.render_body(None).splitlines() if line not in without] == wording


@pytest.mark.parametrize("command", ["", " ", [], [""], ["-x"], ["a\0"]], ids=repr)
def test_command_that_is_none_is_refused(files: HostFilesystem, command: object, wording: Wording) -> None:
    """Before anything is started."""
    run = SuiteRun(SandboxSection(files, engine=Bubblewrap()))
    with run.executor:
        message = run.call("shell_execute", command=command)
    assert not message.success
    assert message.content == wording


def test_podman_refusing_is_logged(files: HostFilesystem, wording: Wording, caplog: pytest.LogCaptureFixture) -> None:
    """The log names what is wrong, and a command that shows it."""
    section = PodmanSandboxSection(files, image=IMAGE, podman=podman_command(), network="no-such-network")
    run = SuiteRun(section)
    with run.executor:
        message = run.call("shell_execute", command="true")
    assert message.content == wording
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "no-such-network" in record.getMessage()
    assert f"{' '.join(podman_command())} run --rm {IMAGE} true" in record.getMessage()


@dataclass(frozen=True)
class Refusing:
    """An engine whose sandbox starts, and runs no command; see `SandboxEngine`."""

    name: str = "refusing"
    reaches_network: bool = False
    command: tuple[str, ...] = ("/bin/sh", "-c", "echo no namespaces here >&2; exit 1")
    runs: bool = True
    closed: list[bool] = field(default_factory=list[bool])

    def check(self) -> None:
        pass

    def start(self, workspace: SandboxWorkspace) -> RunningSandbox:
        close = partial(self.closed.append, True)
        return RunningSandbox({}, lambda _command, _folder, _given: self.command, None, lambda: self.runs, close)


def test_command_whose_sandbox_is_lost_or_does_not_start_fails(files: HostFilesystem, wording: Wording) -> None:
    """What it has changed is undone, and the model reads why."""
    line = ("/bin/sh", "-c", "echo x > changed")
    told: list[str] = []
    for engine in (Refusing(command=line, runs=False), Refusing(command=("/bin/no-such-program",))):
        run = SuiteRun(SandboxSection(files, engine=engine))
        with run.executor:
            told.append(run.refused("shell_execute", command="true"))
        assert not (files.root / "changed").exists()
    assert "\n".join(told) == wording


def test_command_makes_no_git(files: HostFilesystem) -> None:
    """A rollback would leave it, and it could name programs: it is read-only, also one that is made outside later."""
    run = SuiteRun(SandboxSection(files, engine=Bubblewrap()))
    git, line = files.root / ".git", "echo x > .git/config; rm -rf .git; mv .git other; ls -A . .git"
    with run.executor:
        assert "Read-only" in run.told("shell_execute", command=line)
        git.rename(files.root / "before")
        (git / "hooks").mkdir(parents=True)
        assert "Read-only" in run.told("shell_execute", command=line)
        assert [path.name for path in git.iterdir()] == ["hooks"]
