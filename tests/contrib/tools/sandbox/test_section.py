"""The declaration of a sandbox: what is refused, and what the model is told of it."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.contrib.tools import Bubblewrap, Podman, PodmanSandboxSection, SandboxLimits, SandboxSection
from handrail.contrib.tools.sandbox.engine import SandboxWorkspace
from handrail.errors import PromptValidationError, SandboxError
from handrail.filesystem import HostFilesystem
from handrail.process import ProcessName
from handrail.prompt import External, ReadBeforeWritePolicy
from tests.contrib.suites import SuiteRun
from tests.contrib.tools.sandbox.podman_store import IMAGE, containers, podman_command
from tests.kit import raises
from tests.wording import Wording


@pytest.fixture
def files(tmp_path: Path) -> Generator[HostFilesystem]:
    """A workspace."""
    (tmp_path / "root").mkdir()
    with HostFilesystem(tmp_path / "root", journal=tmp_path / "journal", durability="normal") as files:
        yield files


def test_section_brings_the_tool_and_the_file_tools(files: HostFilesystem, wording: Wording) -> None:
    """A file must be read before it is written to."""
    section = SandboxSection(files, engine=Bubblewrap(), commit_on=(0, 1))
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


@pytest.mark.parametrize(
    "fields",
    [
        {"limits": SandboxLimits(memory_bytes=1, processes=True, cpus=0.0, timeout=timedelta(0))},
        {"limits": 3, "commit_on": (), "environment": {"A=": "b"}, "engine": "podman"},
        {"engine": Bubblewrap(program="bwrap-of-no-machine")},
        {"engine": Bubblewrap(folders=(Path("nowhere"),))},
        {"engine": Podman(image="localhost/none:1", command=("podman-of-no-machine",))},
        {"engine": Podman(image="--privileged")},
    ],
    ids=["limits", "types", "no program", "no folder", "no podman", "no name"],
)
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


def test_filesystem_must_be_on_disk(wording: Wording) -> None:
    """Programs see no other one."""
    wrong: Any = object()
    with raises(PromptValidationError, wording):
        SandboxSection(wrong, engine=Bubblewrap())


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


def test_podman_that_refuses_is_logged_and_the_model_does_without(
    files: HostFilesystem, wording: Wording, caplog: pytest.LogCaptureFixture
) -> None:
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
    """An engine whose sandbox starts, and runs no command; see `SandboxEngine` and `RunningSandbox`."""

    name: str = "refusing"
    reaches_network: bool = False
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    namespace: ProcessName | None = None
    command: tuple[str, ...] = ("/bin/sh", "-c", "echo no namespaces here >&2; exit 1")
    runs: bool = True
    closed: list[bool] = field(default_factory=list[bool])

    def check(self) -> None:
        pass

    def start(self, workspace: SandboxWorkspace) -> Refusing:
        return self

    def line(self, command: tuple[str, ...], folder: str, *, has_input: bool) -> tuple[str, ...]:
        return self.command

    def is_running(self) -> bool:
        return self.runs

    def close(self) -> None:
        self.closed.append(True)


def test_developer_can_try_a_sandbox_before_a_model_does(files: HostFilesystem, wording: Wording) -> None:
    """What works is silent; what the machine refuses is one error, and nothing is left running."""
    SandboxSection(files, engine=Bubblewrap()).check_start()
    PodmanSandboxSection(files, image=IMAGE, podman=podman_command()).check_start()
    assert not containers(files.root)
    refused = [Refusing(), Refusing(command=("/bin/no-such-program",)), Refusing(command=("/bin/sh", "-c", "exit 3"))]
    told: list[str] = []
    for engine in refused:
        with pytest.raises(SandboxError) as caught:
            SandboxSection(files, engine=engine).check_start()
        assert (caught.value.engine, engine.closed) == ("refusing", [True])
        told.append(str(caught.value))
    assert "\n".join(told) == wording
    with pytest.raises(SandboxError, match="no-such-network"):
        PodmanSandboxSection(files, image=IMAGE, podman=podman_command(), network="no-such-network").check_start()
    assert not containers(files.root)


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
