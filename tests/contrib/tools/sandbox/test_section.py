"""The declaration of a sandbox: what is refused, and what the model is told of it."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.contrib.tools import Bubblewrap, Podman, PodmanSandboxSection, SandboxLimits, SandboxSection
from handrail.errors import PromptValidationError
from handrail.filesystem import HostFilesystem
from handrail.prompt import External, ReadBeforeWritePolicy
from tests.contrib.suites import SuiteRun
from tests.contrib.tools.sandbox.podman_store import IMAGE, podman_command
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
    with pytest.raises(PromptValidationError) as caught:
        SandboxSection(files, **given)
    assert str(caught.value) == wording


def test_image_must_be_there(files: HostFilesystem) -> None:
    """It is not fetched; the message has the command that does."""
    with pytest.raises(PromptValidationError) as caught:
        PodmanSandboxSection(files, image="localhost/none:1", podman=podman_command())
    assert str(caught.value).endswith(" pull localhost/none:1")


def test_filesystem_must_be_on_disk() -> None:
    """Programs see no other one."""
    wrong: Any = object()
    with pytest.raises(PromptValidationError, match="give a HostFilesystem"):
        SandboxSection(wrong, engine=Bubblewrap())


def test_effects_are_outside_only_with_a_network(files: HostFilesystem) -> None:
    """Without one, all that a command changes is rolled back."""
    quiet = PodmanSandboxSection(files, image=IMAGE, podman=podman_command())
    linked = PodmanSandboxSection(files, image=IMAGE, podman=podman_command(), network="slirp4netns")
    assert quiet.tools[0].effect == "state"
    assert isinstance(linked.tools[0].external, External)
    assert "There is a network." in linked.render_body(None)


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
    (record,) = [record for record in caplog.records if "the sandbox cannot be started" in record.getMessage()]
    assert "no-such-network" in record.getMessage()
    assert "Try: podman" in record.getMessage()
