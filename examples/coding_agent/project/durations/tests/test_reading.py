"""What is read as a duration."""

import unittest
from datetime import timedelta

from durations import read_duration


class Reading(unittest.TestCase):
    """`read_duration`."""

    def test_units_are_added(self) -> None:
        """With and without blanks."""
        self.assertEqual(read_duration("1h 30m"), timedelta(hours=1, minutes=30))
        self.assertEqual(read_duration("2m5s"), timedelta(minutes=2, seconds=5))

    def test_what_is_no_duration_is_refused(self) -> None:
        """Other units, no number, and units out of order."""
        for text in ("", "1y", "h", "30m 1h", "1h 1h"):
            with self.subTest(text), self.assertRaises(ValueError):
                read_duration(text)

    def test_days_are_read(self) -> None:
        """Before the hours."""
        self.assertEqual(read_duration("2d 4h"), timedelta(days=2, hours=4))
