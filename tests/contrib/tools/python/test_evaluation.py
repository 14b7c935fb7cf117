"""The result of the Python suite: how it is rendered, and what is stored of a long output."""

from __future__ import annotations

import pytest

from handrail.contrib.tools import PythonFault
from handrail.contrib.tools.monty import Printed
from tests.wording import Wording


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(PythonFault("ValueError", "no", 3), id="line"),
        pytest.param(PythonFault("ValueError", "no."), id="no line"),
        pytest.param(PythonFault("SystemExit", ""), id="no message"),
    ],
)
def test_fault_is_one_sentence(fault: PythonFault, wording: Wording) -> None:
    """With the line, if it is known."""
    assert fault.sentence == wording


def test_printed_text_is_kept_from_its_beginning_and_its_end(wording: Wording) -> None:
    """However it comes; what is between is counted."""
    text = "".join(chr(97 + number % 26) for number in range(1000))
    for size in (1, 7, 1000):
        printed = Printed(100)
        for start in range(0, 1000, size):
            printed.write(text[start : start + size])
        assert printed.left_out == 900
        first, said, last = printed.text().split("\n")
        assert (first, said, last) == (text[:50], wording, text[-50:])
