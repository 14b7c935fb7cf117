"""A session as one HTML file: no network, no server, and the same bytes for the same session.

Style and script are in it, and its policy allows nothing else: they are named by their digests.
"""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from hashlib import sha256
from importlib.resources import files

from markupsafe import Markup

from handrail import __version__
from handrail.errors import SessionNotFoundError
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.view.compare import compare_sessions
from handrail.view.live import RunUpdate
from handrail.view.render import Look, count_outcomes, render, render_part, render_status
from handrail.view.run_page import RunReader, read_details


def asset(name: str) -> Markup:
    """The style or the script of pages, which stands in a page as it is."""
    return Markup((files("handrail.view") / "templates" / name).read_text("utf-8"))  # noqa: S704 - of this package


def export_run(store: Store, session_id: str, *, trace_url: str = "") -> str:
    """A stored session as a page that needs nothing else.

    Args:
        store: the store of the session.
        session_id: the session.
        trace_url: the address of a span, with `{trace}` and `{span}`, for calls whose traces are known.

    Raises:
        SessionNotFoundError: there is no such session.
        StoreError: it cannot be read.
    """
    row = store.find(session_id)
    if row is None:
        raise SessionNotFoundError(f"{store.url} has no session {session_id!r}", session_id=session_id)
    text = _page_values(store)
    reader, look = RunReader(store, row), Look(partial(read_details, store), trace_url)
    parts, open_parts = reader.read(), reader.open_parts()
    status = render_status(count_outcomes([*parts, *open_parts]), is_held=False)
    rest = RunUpdate(0, (), Markup().join(render_part(part, look) for part in open_parts), status)
    rows = (render_part(part, look) for part in parts)
    return render("run.html", row=row, parts=rows, tail=lambda: rest, **text)


def export_comparison(store: Store, left: SessionRow, right: SessionRow) -> str:
    """Two sessions beside each other, as a page that needs nothing else.

    Raises:
        StoreError: they cannot be read.
        UnknownTypeError: they have entries of a newer version.
    """
    look = Look(partial(read_details, store))
    names = [left.session_id, right.session_id]
    comparison = compare_sessions(store, left, right)
    return render("compare.html", names=names, comparison=comparison, look=look, **_page_values(store))


def _page_values(store: Store) -> dict[str, object]:
    style, script = asset("view.css"), asset("view.js")
    policy = f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; base-uri 'none'"
    source = f"Handrail {__version__}, from {store.url}. Secrets are masked."
    return {"style": style, "script": script, "policy": policy, "source": source}


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
