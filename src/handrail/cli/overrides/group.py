"""The commands of `handrail overrides`."""

from __future__ import annotations

from cyclopts import App

from handrail.cli.overrides.commands import apply_file, check_file, diff_texts, seed_file

overrides: App = App(name="overrides", help="Write, check, compare and install files that replace texts of a prompt.")
"""The group."""

overrides.command(seed_file, name="seed", sort_key=1)
overrides.command(check_file, name="check", sort_key=2)
overrides.command(diff_texts, name="diff", sort_key=3)
overrides.command(apply_file, name="apply", sort_key=4)
