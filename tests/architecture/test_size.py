"""The budgets of `make size`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
    return subprocess.run(
        [sys.executable, SIZE, root, "--format", "json"], capture_output=True, text=True, check=False, timeout=60
    )


def checkout(root: Path, *, budget: int) -> Path:
    """A checkout with one package of one module, which may have so many lines."""
    for folder in (root / "src" / "handrail" / "serde", root / "tests"):
        folder.mkdir(parents=True)
    (root / "src" / "handrail" / "serde" / "codec.py").write_text(MODULE)
    budgets = f"[tool.size]\nall = [9, 9]\ndocstrings = [9, 9]\ntests = [0, 0]\npackages = {{serde = [{budget}, 1]}}\n"
    (root / "pyproject.toml").write_text(budgets)
    return root


def test_no_package_is_over_its_budget() -> None:
    """A budget is raised by a decision record alone; see `pyproject.toml`."""
    done = size(ROOT)
    assert [row for row in json.loads(done.stdout) if row["lines"] > row["max_lines"]] == []
    assert [row for row in json.loads(done.stdout) if row["modules"] > row["max_modules"]] == []
    assert done.returncode == 0


@pytest.mark.parametrize("budget, code", [(4, 0), (3, 1)])
def test_a_package_over_its_budget_is_refused(tmp_path: Path, budget: int, code: int) -> None:
    """Docstrings, comments and blank lines do not count; both lines of a text do. Docstrings are counted apart."""
    done = size(checkout(tmp_path, budget=budget))
    lines = {row["name"]: row["lines"] for row in json.loads(done.stdout)}
    assert lines == {"serde": 4, "all": 4, "docstrings": 3, "tests": 0}
    assert done.returncode == code
