"""`make removed-tests`: what a revision tested and this tree does not."""

from __future__ import annotations

from tests.architecture.removed_tests import removed

BEFORE = """
@pytest.mark.requirement("S-01", "S-02")
def test_one(): ...
class TestAll:
    async def test_one(self): ...
    def helper(self): ...
"""


def test_a_test_that_moved_is_not_missing() -> None:
    """Files do not count, so a move by itself loses nothing."""
    assert removed([BEFORE, "def test_two(): ..."], ["def test_two(): ..." + BEFORE]) == []


def test_what_is_missing_is_listed_with_its_kind() -> None:
    """Of a name that is defined twice, one may be missing."""
    now = 'class TestAll:\n    def test_one(self): ...\n@pytest.mark.requirement("S-02")\ndef test_other(): ...'
    assert removed([BEFORE], [now]) == ["test test_one", "requirement S-01"]
    assert removed(["def test_one(): ..."] * 2, ["def test_one(): ..."]) == ["test test_one"]
