"""The words of every fault, as a model reads them."""

from __future__ import annotations

from inline_snapshot import snapshot

from tests.serde.expected_faults import told
from tests.serde.slips import SLIPS, Wide

WORDS = snapshot(
    {
        "whole": [
            "$.whole: expected an integer, got a string",
            "$.whole: expected an integer, got a number with a decimal point or an exponent",
            "$.whole: expected an integer, got a number with a decimal point or an exponent",
            "$.whole: expected an integer, got a boolean",
            "$.whole: expected an integer, got null",
            "$.whole: expected an integer, got an array",
            "$.whole: expected an integer, got an object",
        ],
        "real": [
            "$.real: expected a number, got a string",
            "$.real: expected a number, got a boolean",
        ],
        "text": ["$.text: expected a string, got an integer"],
        "flag": [
            "$.flag: expected a boolean, got a string",
            "$.flag: expected a boolean, got an integer",
        ],
        "bounded": [
            "$.bounded: expected an integer > 0 and <= 10, got one out of range",
            "$.bounded: expected an integer > 0 and <= 10, got one out of range",
        ],
        "floor": ["$.floor: expected an integer >= 1 and < 9, got one out of range"],
        "third": ["$.third: expected an integer divisible by 3, got one that is not"],
        "short": [
            "$.short: expected a string of 1 to 5 characters, got one of 0 characters",
            "$.short: expected a string of 1 to 5 characters, got one of 6 characters",
        ],
        "long": ["$.long: expected a string of at least 2 characters, got one of 1 character"],
        "exact": ["$.exact: expected a string of 2 characters, got one of 1 character"],
        "code": ["$.code: expected a string matching ^[a-z]+$, got one that does not match"],
        "room": [
            '$.room: expected "hall", "attic" or "cellar", got another string; did you mean "attic"?',
            '$.room: expected "hall", "attic" or "cellar", got another string',
            '$.room: expected "hall", "attic" or "cellar", got an integer',
        ],
        "status": [
            '$.status: expected "pending", "in_progress" or "done", got another string; did you mean',
            '    "in_progress"?',
            '$.status: expected "pending", "in_progress" or "done", got an integer',
        ],
        "letter": [
            '$.letter: expected "A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M", "N", "O",',
            '    "P", "Q", "R", "S", "T" or one of 4 more, got another string; did you mean "B"?',
        ],
        "moment": [
            '$.moment: expected a date-time string such as "2026-01-31T12:00:00Z" or null: input should be a',
            "    valid datetime, month value is outside expected range of 1-12",
            '$.moment: expected a date-time string such as "2026-01-31T12:00:00Z" or null: input should be a',
            "    valid datetime, input is too short",
            '$.moment: expected a date-time string such as "2026-01-31T12:00:00Z" or null, got an integer',
        ],
        "day": [
            '$.day: expected a date string such as "2026-01-31": input should be a valid date in the format',
            "    YYYY-MM-DD, day value is outside expected range",
        ],
        "hour": [
            '$.hour: expected a time string such as "12:00:00": input should be in a valid time format, hour',
            "    value is outside expected range of 0-23",
        ],
        "span": [
            '$.span: expected an ISO 8601 duration string such as "PT1H30M": input should be a valid',
            "    duration, invalid digit in duration",
            '$.span: expected an ISO 8601 duration string such as "PT1H30M", got an integer',
        ],
        "key": ["$.key: expected a UUID string or null: input should be a valid UUID, invalid length: found 4"],
        "raw": ["$.raw: expected a base64url string: data should be valid base64: Invalid symbol 195, offset 0."],
        "price": [
            '$.price: expected a number or a decimal string such as "12.50": it has to be written in the',
            "    digits 0 to 9, with a sign, a decimal point and an exponent where needed, and no blanks,",
            "    commas or underscores",
            '$.price: expected a number or a decimal string such as "12.50", got a boolean',
        ],
        "late": ['$.late: expected a date string such as "2026-01-31": input should be greater than 2026-01-01'],
        "pair": [
            "$.pair[1]: missing item; expected a string",
            "$.pair: expected an array of 2 items (an integer, a string), got one of 3 items",
            "$.pair[0]: expected an integer, got a string",
            "$.pair[1]: expected a string, got an integer",
        ],
        "few": [
            "$.few: expected an array of at most 2 items (each item: an integer), got one of 3 items",
            "$.few[0]: expected an integer, got a string",
            "$.few: expected an array of at most 2 items (each item: an integer), got a string; send the",
            "    JSON itself, not a string that holds it",
        ],
        "some": ["$.some: expected an array of at least 1 item (each item: an integer), got one of 0 items"],
        "rows": [
            "$.rows[0].title: missing field title; expected a string of 1 to 40 characters",
            "$.rows[0].titel: unknown field titel, did you mean title? known fields: title, status, weight",
            "$.rows[0].weight: expected an integer > 0, got one out of range",
            "$.rows: expected an array (each item: an object with the fields (title, status, weight)), got a",
            "    string; send the JSON itself, not a string that holds it",
        ],
        "counts": [
            "$.counts: expected an object of at least 1 entry (each value: an integer), got one of 0 entries",
            '$.counts["a b"]: expected an integer, got a string',
            "$.counts.c: expected an integer, got a number with a decimal point or an exponent",
        ],
        "numbered": ["$.numbered.one: wrong key: input should be an integer in digits"],
        "inner": [
            "$.inner: low must not be above high",
            "$.inner.low: expected an integer, got a string",
            "$.inner.high: missing field high; expected an integer",
        ],
        "nothing": ["$.nothing: expected null, got an integer"],
        "listed": ["$.listed[0]: expected an integer", "$.listed[1]: expected an integer"],
        "empty": [
            "$.empty.a: unknown field a; known fields: none",
            "$.empty: expected an object without fields or null, got an array",
        ],
        "even": ["$.even: must be even"],
        "either": [
            "$.either: expected an integer, an array (each item: a string), an object (each value: an",
            "    integer) or null, got a number with a decimal point or an exponent",
            "$.either[1]: expected a string, got an integer",
            "$.either.a: expected an integer, got a string",
        ],
        "limited": [
            "$.limited: expected an integer > 5 or a string of at most 2 characters, got an integer that is",
            "    none of these",
            "$.limited: expected an integer > 5 or a string of at most 2 characters, got a string that is",
            "    none of these",
            "$.limited: expected an integer > 5 or a string of at most 2 characters, got null",
        ],
        "ranged": [
            "$.ranged: low must not be above high",
            "$.ranged: expected an object with the fields (low, high) or a string, got an integer",
        ],
        "lists": [
            "$.lists[0][1]: expected an integer, got a string (if meant as list[int])",
            "$.lists[0][0]: expected a string, got an integer (if meant as list[str])",
        ],
        "pages": ["$.pages.items[0]: expected an integer or a string, got null"],
        "tagged": [
            "$.tagged: expected an object with the fields (kind, radius), an object with the fields (kind,",
            "    side) or null, got an object that is none of these",
            '$.tagged.kind: expected "circle" or "square", got another string',
        ],
    }
)


def test_every_slip_is_told_with_its_path_and_what_would_be_right() -> None:
    """No value that was sent is among the words, and no address of documentation."""
    said = {name: [line for value in values for line in told(Wide, {name: value})] for name, values in SLIPS.items()}
    assert said == WORDS
