"""`handrail view`: the sessions of a store as pages, to look at; or one of them as a file."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from handrail.cli.options import PORT, StoreOptions
from handrail.cli.screen import Screen
from handrail.operations.sessions import find_session, know_conversations


def view_session(  # noqa: PLR0913 - the options of the command
    session: str | None = None,
    /,
    *,
    export: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    port: Annotated[int | None, PORT] = None,
    allow_actions: Annotated[bool, Parameter(negative="")] = False,
    trace_url: Annotated[str, Parameter(metavar="URL")] = "",
    options: StoreOptions = StoreOptions(),
) -> None:
    """Look at sessions in a browser, while they run: what was said, and each call with its times, changes and effect.

    With --export it is one file of one session, which needs no network and no server. Secrets are masked in both. The
    pages are served to this machine alone, and only to the browser that is given the printed address. Nothing can be
    changed there without --allow-actions.

    Example: `handrail view night-desk --export night-desk.html`

    Args:
        session: The session to begin with, as `sessions list` shows it.
        export: Write the session to this file; one that exists is replaced.
        port: The port of the pages; a free one unless given.
        allow_actions: Let the pages answer questions, and settle unknown effects.
        trace_url: The address of a span in your tracing tool, with `{trace}` and `{span}`.
        options: The store.
    """
    from handrail.view.export import export_run  # noqa: PLC0415 - needs the extra `view`
    from handrail.view.server import ViewServer  # noqa: PLC0415 - as above

    know_conversations()
    screen = Screen()
    if export is not None:
        if session is None:
            raise CycloptsError(msg="name the SESSION that is written")
        with options.open() as store:
            page = export_run(store, find_session(store, session).session_id, trace_url=trace_url)
        export.write_text(page, encoding="utf-8")
        if options.as_json:
            screen.json({"session_id": session, "file": str(export)})
        else:
            screen.say(f"The page of session {session} is in {export}.")
        return
    with options.open(writing=allow_actions) as store, socket.create_server(("127.0.0.1", port or 0)) as listener:
        server = ViewServer(store, listener.getsockname()[1], allow_actions=allow_actions, trace_url=trace_url)
        address = server.address(None if session is None else find_session(store, session).session_id)
        # No browser is opened: with what one is started can be read by all users of the machine.
        if options.as_json:
            screen.json({"address": address})
        else:
            screen.say(f"The pages are at {address}")
            screen.remark("Ctrl-C ends them.")
        server.serve(listener)
