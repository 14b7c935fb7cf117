"""What an evaluation returns, as JSON of bounded size."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handrail.python_worker.results import Printed, failure, line_of, success, text_and_form, timed_out
from tests.wording import Wording


def test_printed_text_is_kept_from_its_beginning_and_its_end(wording: Wording) -> None:
    """However it comes; what is between is counted."""
    text = "".join(chr(97 + number % 26) for number in range(1000))
    for size in (1, 7, 1000):
        printed = Printed(100)
        for start in range(0, 1000, size):
            assert printed.write(text[start : start + size]) == len(text[start : start + size])
        printed.flush()
        assert printed.left_out == 900
        first, said, last = printed.text().split("\n")
        assert (first, said, last) == (text[:50], wording, text[-50:])


def test_printed_text_that_fits_is_kept_whole() -> None:
    """To the last character."""
    printed = Printed(10)
    printed.write("12345")
    printed.write("67890")
    assert (printed.text(), printed.left_out) == ("1234567890", 0)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value, text, form",
    [
        (1, "1", "json"),
        (True, "true", "json"),
        ("é\n", '"é\\n"', "json"),
        ({"a": [1, None, 2.5]}, '{"a": [1, null, 2.5]}', "json"),
        ((1, 2), "(1, 2)", "repr"),
        ([(1,)], "[(1,)]", "repr"),
        ({1: 2}, "{1: 2}", "repr"),
        (float("nan"), "nan", "repr"),
        (Text("x"), "'x'", "repr"),
        (b"x", "b'x'", "repr"),
        ({1}, "{1}", "repr"),
    ],
)
def test_value_is_json_where_that_is_all_of_it(value: object, text: str, form: str) -> None:
    """Else a model and a program would read another value."""
    assert text_and_form(value, 100) == (text, form)


def nested(depth: int) -> Any:
    """A list in a list, and so on."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_value_that_cannot_be_shown_whole_is_cut_or_named(wording: Wording) -> None:
    """A long one, a deep one, one that contains itself, an integer of too many digits."""
    long, form = text_and_form("x" * 1000, 100)
    assert (long, form) == (wording, "repr")
    assert len(long) < 200
    assert text_and_form(nested(150), 1000)[1] == "repr"
    assert text_and_form(nested(100_000), 100)[0].partition(":")[0] == wording
    circle: list[object] = []
    circle.append(circle)
    assert text_and_form(circle, 100) == ("[[...]]", "repr")
    assert text_and_form(10**5000, 100)[0].partition(":")[0] == wording


def test_results_have_only_the_fields_that_say_something() -> None:
    """And all of them are JSON."""
    printed = Printed(10)
    printed.write("hi")
    assert success(None, printed, 10) == {"printed": "hi", "left_out": 0}
    assert success(2, printed, 10) == {"printed": "hi", "left_out": 0, "value": "2", "form": "json"}
    failed = failure("ValueError", "x" * 5000, 3, printed, ends=True)
    assert (failed["error"]["line"], failed["ends"], len(failed["error"]["message"]) < 2100) == (3, True, True)
    assert timed_out(2.5)["error"]["type"] == "TimeoutError"
    assert json.loads(json.dumps(failed)) == failed


def test_innermost_line_that_is_known_counts() -> None:
    """Frames without a line are passed over."""
    assert line_of([1, 7, None, 0]) == 7
    assert line_of([]) is None
