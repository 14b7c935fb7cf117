"""A browser without a window: requests to the pages of a store, and the forms that they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import unquote

from httpx2 import Response
from starlette.testclient import TestClient

from handrail.store import Store
from handrail.view.server import ViewServer

PORT = 8765
ORIGIN = f"http://localhost:{PORT}"


def visit(store: Store, *, allow_actions: bool = False) -> TestClient:
    """A browser that has opened the printed address."""
    server = ViewServer(store, PORT, allow_actions=allow_actions)
    client = TestClient(server.app, base_url=ORIGIN, follow_redirects=False)
    assert client.get(f"/?token={server.app.token}").status_code == 200
    return client


@dataclass
class PageForm:
    """A form of a page.

    Attributes:
        action: where it is sent to.
        fields: what its hidden fields have.
    """

    action: str
    fields: dict[str, str] = field(default_factory=dict[str, str])


class Page(HTMLParser):
    """What a page has.

    Attributes:
        links: the addresses of its links, by their texts; of several with one text the last one.
        rows: the texts of the rows of its tables.
        faults: what it says has gone wrong.
        forms: its forms that are posted.
        words: the text of its main part.
    """

    def __init__(self, response: Response, status: int = 200) -> None:
        assert response.status_code == status, response.text
        super().__init__()
        self.links: dict[str, str] = {}
        self.rows: list[str] = []
        self.faults: list[str] = []
        self.forms: list[PageForm] = []
        self.words = ""
        # The texts of the elements that are open, and of what they are.
        self._open: list[tuple[str, str, list[str]]] = []
        self.feed(response.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag in {"a", "tr", "p", "main"}:
            self._open.append((tag, attributes.get("href") or attributes.get("class", ""), []))
        elif tag == "form" and attributes.get("method") == "post":
            self.forms.append(PageForm(attributes["action"]))
        elif tag == "input" and attributes.get("type") == "hidden":
            self.forms[-1].fields[attributes["name"]] = attributes["value"]

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            return
        _, what, texts = self._open.pop()
        text = " ".join("".join(texts).split())
        if tag == "a":
            self.links[text] = what
        elif tag == "main":
            self.words = text
        elif (tag, what) == ("tr", "row"):
            self.rows.append(text)
        elif (tag, what) == ("p", "fault"):
            self.faults.append(text)

    def handle_data(self, data: str) -> None:
        for _, _, texts in self._open:
            texts.append(f"{data} ")


def see(client: TestClient, address: str, status: int = 200) -> Page:
    """A page."""
    return Page(client.get(address), status)


def send(client: TestClient, form: PageForm, **fields: str) -> Response:
    """Sends a form, as the browser does that shows it."""
    return client.post(form.action, data={**form.fields, **fields}, headers={"origin": ORIGIN})


def hidden(form: PageForm) -> Mapping[str, str]:
    """What the hidden fields of a form say, without its token."""
    return {name: unquote(value) for name, value in form.fields.items() if name != "token"}
