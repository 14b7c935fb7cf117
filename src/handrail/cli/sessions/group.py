"""The commands of `handrail sessions`."""

from __future__ import annotations

from cyclopts import App

from handrail.cli.sessions.removal import delete_sessions, prune_sessions
from handrail.cli.sessions.show import fork_session, list_sessions, show_session

sessions: App = App(name="sessions", help="List, show, fork and delete the sessions of a store.")
"""The group."""

sessions.command(list_sessions, name="list", sort_key=1)
sessions.command(show_session, name="show", sort_key=2)
sessions.command(fork_session, name="fork", sort_key=3)
sessions.command(delete_sessions, name="delete", sort_key=4)
sessions.command(prune_sessions, name="prune", sort_key=5)
