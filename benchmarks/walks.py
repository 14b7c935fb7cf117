"""What approval rules on paths add to a walk through many files: each path is held against each rule."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Bound
from handrail.agents import ApprovalRules, Rule
from handrail.agents.approval.path_rules import rule_filter
from handrail.filesystem import HostFilesystem

FOLDERS, FILES, RULES = 50, 100, 50

BARE = f"glob over {FOLDERS * FILES:,} files"
RULED = f"{BARE}, {RULES} rules on paths"
BOUNDS = (Bound(RULED, BARE, 3.0),)


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the tree is there for the time of the block."""
    with ExitStack() as opened:
        root = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        for number in range(FOLDERS):
            folder = root / "root" / f"d{number}"
            folder.mkdir(parents=True)
            for file in range(FILES):
                (folder / f"f{file}.py").write_text("value = 1\n")
        bare = opened.enter_context(HostFilesystem(root / "root", journal=root / "journal"))
        deny = tuple(Rule("*", {"path": f"**/s{number}/*.key"}) for number in range(RULES))
        ruled = bare.filtered(rule_filter(ApprovalRules(deny=deny), ("bench",), "ask"))
        yield {BARE: lambda: _all(bare), RULED: lambda: _all(ruled)}


def _all(filesystem: HostFilesystem) -> int:
    found = len(filesystem.glob("**"))
    assert found == FOLDERS * (FILES + 1)
    return found
