"""The descriptions of a function and its parameters, from its docstring."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.prompt.function_signature import Description, description_in

GOOGLE = """Charge the card.

    A second paragraph.

    Args:
        order: number of
            the order.
        cents (int): amount.
        **more: others.

    Note:
        It is not undone.

    Returns:
        the receipt.
    """

NUMPY = """Charge the card.

    A second paragraph.

    Parameters
    ----------
    order : str
        number of
        the order.
    cents : int, optional
        amount.

    Returns
    -------
    Receipt
        the receipt.
    """

SPHINX = """Charge the card.

    A second paragraph.

    :param order: number of
        the order.
    :param int cents: amount.
    :returns: the receipt.
    """

PARAMETERS = {"order": "number of the order.", "cents": "amount."}


@pytest.mark.parametrize("docstring, more", [(GOOGLE, "\n\nNote: It is not undone."), (NUMPY, ""), (SPHINX, "")])
def test_the_styles_say_the_same(docstring: str, more: str) -> None:
    """A note belongs to the description; what is returned does not: the model reads the result."""
    expected = Description(f"Charge the card.\n\nA second paragraph.{more}", PARAMETERS)
    assert description_in(docstring, ["order", "cents"]) == expected


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_sections_need_no_blank_lines(docstring: str) -> None:
    """Neither before a section nor between two of them; a blank line behind a title is as good."""
    dense = "\n".join(line for line in docstring.splitlines() if line.strip())
    for text in (dense, dense.replace("Args:\n", "Args:\n\n")):
        found = description_in(text, ["order", "cents"])
        assert found.parameters == PARAMETERS
        assert found.text.startswith("Charge the card.")
        assert "number of" not in found.text


UNREADABLE = (None, "", "Plain text: with a colon.", "Args: none of any use.")
WITHOUT = ("Text.\n\nArgs:\n    other: of another function.", "Text.\n\nParameters\n----------\n")


@pytest.mark.parametrize("docstring", [*UNREADABLE, *WITHOUT])
def test_what_cannot_be_read_is_the_description_as_it_stands(docstring: str | None) -> None:
    """Nothing of it is lost."""
    found = description_in(docstring, ["order"])
    assert found.text.split() == (docstring or "").split() or found.text == "Text."
    assert not found.parameters


GOOGLES = ("Args:\n", "    a: b\n", "Returns:\n", "\n", ">>> x\n")
PIECES = st.sampled_from([*GOOGLES, "Parameters\n", "----------\n", "a : int\n", ":param a: b\n"])


@given(st.lists(PIECES | st.text(max_size=9), max_size=12).map("".join))
def test_no_docstring_is_an_error(docstring: str) -> None:
    """Whatever griffe makes of it; descriptions are of parameters that are there."""
    assert set(description_in(docstring, ["a"]).parameters) <= {"a"}


def test_griffe_is_imported_with_the_first_docstring_that_has_sections() -> None:
    """Not with Handrail, and not for a plain text."""
    program = (
        "import sys\nimport handrail.prompt\nfrom handrail.prompt.function_signature import description_in\n"
        "description_in('Plain.', [])\nassert 'griffe' not in sys.modules\n"
        "description_in('Text.\\n\\nArgs:\\n    a: b', ['a'])\nassert 'griffe' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
