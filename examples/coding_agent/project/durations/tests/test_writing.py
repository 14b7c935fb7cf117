"""What is written for a duration."""

import unittest
from datetime import timedelta

from durations import write_duration


class Writing(unittest.TestCase):
    """`write_duration`."""

    def test_the_largest_unit_is_first(self) -> None:
        """And units without a number are left out."""
        self.assertEqual(write_duration(timedelta(minutes=90)), "1h 30m")
        self.assertEqual(write_duration(timedelta(seconds=61)), "1m 1s")

    def test_nothing_is_written_as_seconds(self) -> None:
        """A duration is never empty."""
        self.assertEqual(write_duration(timedelta()), "0s")

    def test_a_day_is_written_in_hours(self) -> None:
        """Invoices are made by the hour."""
        self.assertEqual(write_duration(timedelta(hours=26)), "26h")
