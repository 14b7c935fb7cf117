"""Containers of Podman, and calls that are killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaos.sandboxes import TARGETS, play
from handrail.contrib.tools.sandbox.podman import OWNER_LABEL, is_dead, podman_environment, remove_left_over
from handrail.process import ProcessName, own_name
from tests.contrib.tools.sandbox.fake_podman import FakePodman
from tests.contrib.tools.sandbox.grounds import Ground, short_limits
from tests.extent import FULL
from tests.wording import Wording


def own() -> ProcessName:
    """This process."""
    return own_name()


def test_owner_is_dead_if_it_does_not_run_or_its_boot_is_over() -> None:
    """What is not known, and what another PID namespace hides, counts as alive."""
    assert not is_dead(own())
    assert is_dead(own()._replace(start="1"))
    assert is_dead(own()._replace(boot="another-boot/1/2"))
    assert not is_dead(own()._replace(boot=f"{own().boot.partition('/')[0]}/1/2", start="1"))
    assert not is_dead(own()._replace(boot=""))


def listed(**owners: str | None) -> str:
    """What `podman ps` prints of containers, by their ids."""
    labels = {name: None if owner is None else {OWNER_LABEL: owner} for name, owner in owners.items()}
    return json.dumps([{"Id": name, "Labels": label} for name, label in labels.items()])


def test_containers_of_dead_owners_are_removed(tmp_path: Path) -> None:
    """And no others: of a process that runs, without a label, or with one that names no process."""
    dead = str(own()._replace(start="1"))
    (tmp_path / "ps.json").write_text(listed(a=dead, b=str(own()), c=None, d="nobody", e=dead))
    podman = FakePodman(tmp_path, ps=f"cat {tmp_path}/ps.json")
    assert remove_left_over(podman.command) == ("a", "e")
    assert podman.asked("rm") == [["--force", "--time", "0", "a", "e"]]
    (tmp_path / "ps.json").write_text("")
    assert remove_left_over(podman.command) == ()
    assert len(podman.asked("rm")) == 1


def test_what_cannot_be_listed_or_removed_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The next sandbox tries it again."""
    (tmp_path / "ps.json").write_text(listed(a=str(own()._replace(start="1"))))
    podman = FakePodman(tmp_path, ps=f"cat {tmp_path}/ps.json", rm="echo busy >&2; exit 2")
    assert remove_left_over(podman.command) == ("a",)
    (tmp_path / "ps.json").write_text("no JSON")
    assert remove_left_over(podman.command) == ()
    assert remove_left_over((str(tmp_path / "no-podman"),)) == ()
    assert [record.getMessage() for record in caplog.records] == wording


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
