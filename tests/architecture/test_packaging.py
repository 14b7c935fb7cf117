"""The files that install, check and ship the project, and the budgets of `make size`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TypedDict, cast

import pytest

from tests.architecture.sources import ROOT
from tests.wording import Wording

Project = TypedDict("Project", {"dependencies": list[str], "optional-dependencies": dict[str, list[str]]})
Settings = TypedDict("Settings", {"project": Project, "dependency-groups": dict[str, list[str]]})


def test_the_library_depends_on_pydantic_and_griffe_alone() -> None:
    """Everything else is an extra."""
    assert [_name(line) for line in _settings()["project"]["dependencies"]] == ["griffelib", "pydantic"]


def test_everything_asked_for_is_pinned_with_its_hashes() -> None:
    """What `make setup` installs is the same everywhere; `make lock` brings the pins up to date."""
    settings = _settings()
    project, others = settings["project"], settings["dependency-groups"].values()
    groups = [project["dependencies"], *project["optional-dependencies"].values(), *others]
    asked_for = {_name(line) for group in groups for line in group} - {"handrail"}
    pins = re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==\S+(?: ;.*)? \\\n    --hash=sha256:", _pins(), re.MULTILINE)
    assert asked_for - set(pins) == set()


def test_setup_leaves_an_environment_alone_that_the_checkout_has_a_link_to(tmp_path: Path, wording: Wording) -> None:
    """Other checkouts use it; the project that is installed in it is theirs."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", tmp_path / "scripts")
    shared = tmp_path / "shared"
    (tmp_path / ".venv").symlink_to(shared)
    done = subprocess.run(["sh", tmp_path / "scripts" / "setup.sh"], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == wording
    assert not shared.exists()


def _pins() -> str:
    return "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "requirements").glob("*.txt")))


def _settings() -> Settings:
    # The file is this repository's own, and what the tests below read of it has this shape.
    return cast("Settings", tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8")))


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[._]", "-", match[0].lower()) if match else requirement


SIZE = ROOT / "scripts" / "size.py"

MODULE = '''"""A module
of two lines."""

# a comment
TEXT = """a text
of two lines"""
def act() -> None:
    """Act."""
    return None  # and a comment
'''


def size(root: Path) -> subprocess.CompletedProcess[str]:
    """What `make size` prints of a checkout."""
    return subprocess.run([sys.executable, SIZE, root, "--format", "json"], capture_output=True, text=True, check=False)


def checkout(root: Path, *, budget: int) -> Path:
    """A checkout with one package of one module, which may have so many lines."""
    for folder in (root / "src" / "handrail" / "serde", root / "tests"):
        folder.mkdir(parents=True)
    (root / "src" / "handrail" / "serde" / "codec.py").write_text(MODULE)
    others = "all = [9, 9]\ndocstrings = [9, 9]\ntemplates = [0, 0]\ntests = [0, 0]"
    budgets = f"[tool.size]\n{others}\npackages = {{serde = [{budget}, 1]}}\n"
    (root / "pyproject.toml").write_text(budgets)
    return root


def test_no_package_is_over_its_budget() -> None:
    """A budget is raised by a decision record alone; see `pyproject.toml`."""
    done = size(ROOT)
    rows = json.loads(done.stdout)
    over = [row for row in rows if row["lines"] > row["max_lines"] or row["modules"] > row["max_modules"]]
    assert (over, done.returncode) == ([], 0)


@pytest.mark.parametrize("budget, code", [(4, 0), (3, 1)])
def test_a_package_over_its_budget_is_refused(tmp_path: Path, budget: int, code: int) -> None:
    """Docstrings, comments and blank lines do not count; both lines of a text do. Docstrings are counted apart."""
    done = size(checkout(tmp_path, budget=budget))
    lines = {row["name"]: row["lines"] for row in json.loads(done.stdout)}
    assert lines == {"serde": 4, "all": 4, "docstrings": 3, "templates": 0, "tests": 0}
    assert done.returncode == code
