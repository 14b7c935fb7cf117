"""The commands of `handrail ledger`."""

from __future__ import annotations

from cyclopts import App

from handrail.cli.ledger.changes import invalidate_effects, prune_effects, reconcile_effect
from handrail.cli.ledger.show import list_effects, show_effect

ledger: App = App(name="ledger", help="Show the effects of the ledger, and resolve or remove them.")
"""The group."""

ledger.command(list_effects, name="list", sort_key=1)
ledger.command(show_effect, name="show", sort_key=2)
ledger.command(reconcile_effect, name="reconcile", sort_key=3)
ledger.command(invalidate_effects, name="invalidate", sort_key=4)
ledger.command(prune_effects, name="prune", sort_key=5)
