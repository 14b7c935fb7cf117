"""`make bench`: what a call costs, as ratios from one run of one process. Exits with 1 when a bound is missed."""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.calls import BOUNDS, cases
from benchmarks.timing import Ratio, measure, ratios


def main() -> int:
    """Measure, print, and say whether the bounds hold."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="how often each case is timed (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=500, help="how many calls a timing takes (default: %(default)s)")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="what to print")
    options = parser.parse_args()
    times = measure(cases(), rounds=options.rounds, calls=options.calls)
    found = ratios(times, BOUNDS)
    if options.format == "json":
        print(json.dumps({"microseconds": times, "ratios": [_as_json(ratio) for ratio in found]}, indent=2))
    else:
        _print_tables(times, found)
    return 0 if all(ratio.met for ratio in found) else 1


def _print_tables(times: dict[str, float], found: list[Ratio]) -> None:
    print(f"{'case':<34}{'us a call':>10}{'x floor':>10}")
    for name, taken in times.items():
        print(f"{name:<34}{taken:>10.2f}{taken / times['floor']:>10.2f}")
    print(f"\n{'bound':<50}{'at most':>9}{'measured':>10}")
    for ratio in found:
        bound = ratio.bound
        verdict = "" if ratio.met else "  MISSED"
        print(f"{bound.case + ' / ' + bound.floor:<50}{bound.factor:>9.2f}{ratio.measured:>10.2f}{verdict}")


def _as_json(ratio: Ratio) -> dict[str, object]:
    bound = ratio.bound
    return {
        "case": bound.case,
        "floor": bound.floor,
        "at_most": bound.factor,
        "measured": ratio.measured,
        "met": ratio.met,
    }


if __name__ == "__main__":
    sys.exit(main())
