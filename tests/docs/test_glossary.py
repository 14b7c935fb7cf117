"""`docs/glossary.md` defines each term once."""

from __future__ import annotations

from tests.docs.test_tables import table_of

DEFINED = [row[0] for row in table_of("glossary.md", "term")]
OF_HANDRAIL = (
    *("call", "result", "message", "event", "slice", "transaction", "participant", "turn", "ticket", "effect"),
    *("ledger", "claim", "key", "slot", "lease", "fencing token", "store", "unit of work", "journal", "before-image"),
    *("policy", "rule", "gate", "approval", "suite", "toolset", "registry", "run"),
)
"""The terms that Handrail gives a meaning of its own."""


def test_terms_are_defined_once_and_in_order() -> None:
    """Two meanings of one word are two rows that say of what they are."""
    assert sorted(set(DEFINED), key=str.lower) == DEFINED


def test_the_terms_of_handrail_are_defined() -> None:
    """All of them."""
    assert {*OF_HANDRAIL} <= {*DEFINED}
