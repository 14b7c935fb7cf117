"""What shells need to complete the command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.desk import Command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.short(1)
def test_a_script_knows_the_commands_and_their_options(handrail: Command, shell: str) -> None:
    """Those of agents too, and it goes to standard output alone."""
    ran = handrail("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    for word in ("run", "check", "new", "sessions", "approvals", "reconcile", "approve-all", "request-limit"):
        assert word in ran.out


def test_bash_completes_with_its_script(handrail: Command, tmp_path: Path) -> None:
    """As it does when a person presses Tab."""
    script = tmp_path / "handrail.bash"
    script.write_text(handrail("completion", "bash").out)
    line = "handrail run desk.agent --approve d"
    program = f"""
        source {script}
        COMP_WORDS=({line}); COMP_CWORD=4; COMP_LINE='{line}'; COMP_POINT={len(line)}
        _handrail; echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(("bash", "-c", program), capture_output=True, check=False, encoding="utf-8", timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "deny-all", "")
