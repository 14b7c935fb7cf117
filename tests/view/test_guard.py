"""Who gets a page: a browser of this machine that has the printed address. Raw requests to a real process ask."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest

from handrail import store as stores
from handrail.runtime import Session, ToolCall
from tests.cli.approvals.loops import Loop, pay_call
from tests.kit import call, executor, scribble, tool
from tests.view.served_pages import Answer, ServedPages, send, served_pages

SESSION = "loop"
ROUTES = ("/", "/effects", "/questions", "/compare", "/static/view.css", "/static/view.js", "/static/none", "/none")
OF_SESSION = (f"/run?session={SESSION}", f"/call?session={SESSION}&call={SESSION}/resp_1/c1")
FORMS = ("/answer", "/settle")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a run that waits."""
    url = f"sqlite:///{tmp_path_factory.mktemp('guard')}/desk.db"
    Loop(url, calls=(pay_call(),)).waits()
    return url


@pytest.fixture(scope="module")
def pages(url: str) -> Iterator[ServedPages]:
    """Its pages, with actions."""
    with served_pages(url, "--allow-actions") as pages:
        yield pages


def refused(answer: Answer, status: int) -> None:
    """The answer is a line of text that says nothing of the store."""
    assert (answer.status, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert len(answer.body.splitlines()) == 1
    assert SESSION not in answer.body
    assert answer.cookies == []


# ---------------------------------------------------------------------------------------------------------------- hosts


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:{port}", "localhost.evil.example:{port}", "127.0.0.1.evil.example:{port}"),
        *("[::2]:{port}", "::1", "0.0.0.0:{port}", "127.0.0.2:{port}", "localhost@evil.example"),
    ],
)
@pytest.mark.short(9)
def test_host_of_another_site_is_refused_on_every_route(pages: ServedPages, host: str) -> None:
    """A page whose name has been led here (DNS rebinding) reads nothing, whatever it knows; static files included."""
    for route in (*ROUTES, *OF_SESSION, f"/?token={pages.token}"):
        refused(send(pages, route, host=host.format(port=pages.port)), 421)
    for form in FORMS:
        refused(send(pages, form, "POST", "a=b", host=host.format(port=pages.port), sec_fetch_site="same-origin"), 421)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:{port}", "[::1]:{port}", "[::1]", "LocalHost:{port}"])
@pytest.mark.short(5)
def test_names_of_this_machine_are_answered(pages: ServedPages, host: str) -> None:
    """With a port and without."""
    assert send(pages, "/", host=host.format(port=pages.port)).status == 200


# --------------------------------------------------------------------------------------------------------------- tokens


def next_address(answer: Answer) -> str:
    """The address to which a page leads at once, and the only one of its links."""
    (address,) = {*re.findall(r'(?:<a href="|content="0;url=)([^"]*)"', answer.body)}
    return unescape(address)


def test_token_is_exchanged_for_a_cookie(pages: ServedPages) -> None:
    """No script reads it, no other site has it sent, its name has the port; the address is without the token."""
    answer = send(pages, f"/run?session={quote('a b&c')}&token={pages.token}&x=1", cookie="")
    assert (answer.status, next_address(answer)) == (200, "/run?session=a+b%26c&x=1")
    assert pages.token not in answer.body
    (cookie,) = answer.cookies
    value, *attributes = cookie.split("; ")
    assert value == f"handrail-{pages.port}={pages.token}"
    assert {*attributes} == {"HttpOnly", "Path=/", "SameSite=strict"}
    assert send(pages, "/", cookie=value).status == 200


def test_address_with_the_token_leads_to_this_server_alone(pages: ServedPages) -> None:
    """Two slashes at the beginning of a path would name another server."""
    for path in ("//evil.example/", "/\\evil.example", "///evil.example/x", '/">evil'):
        answer = send(pages, f"{path}?token={pages.token}", cookie="")
        assert answer.status == 200
        assert next_address(answer).startswith("/")
        assert next_address(answer)[1:2] not in {"/", "\\"}


@pytest.mark.parametrize("way", ["none", "wrong", "empty", "longer", "other port", "not ASCII"])
@pytest.mark.short(6)
def test_who_has_no_token_gets_nothing(pages: ServedPages, way: str) -> None:
    """In the address and as the cookie, on every route; no form is read."""
    token = {"wrong": "a" * len(pages.token), "longer": f"{pages.token}a", "not ASCII": "%C3%A9"}.get(way, "")
    port = pages.port + 1 if way == "other port" else pages.port
    value = pages.token if way == "other port" else token
    cookie = "" if way == "none" else f"handrail-{port}={value}"
    for route in (*ROUTES, *OF_SESSION):
        query = "" if way == "none" else f"{'&' if '?' in route else '?'}token={token}"
        refused(send(pages, f"{route}{query}", cookie=cookie), 403)
    for form in FORMS:
        refused(send(pages, form, "POST", "a=b", cookie=cookie, sec_fetch_site="same-origin"), 403)


# ---------------------------------------------------------------------------------------------------------------- forms


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "https://127.0.0.1:{port}"},
        {"sec_fetch_site": "cross-site", "origin": "http://127.0.0.1:{port}"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
    ],
    ids=str,
)
@pytest.mark.short(8)
def test_form_of_another_site_is_refused(pages: ServedPages, headers: dict[str, str]) -> None:
    """It is read only from a page of this server: by its origin, or by what the browser says of that."""
    own = {name: value.format(port=pages.port) for name, value in headers.items()}
    for form, method in product(FORMS, ("POST", "PUT", "DELETE")):
        refused(send(pages, form, method, "a=b", **own), 403)


@pytest.mark.parametrize("headers", [{"origin": "http://127.0.0.1:{port}"}, {"sec_fetch_site": "same-origin"}], ids=str)
def test_form_of_a_page_is_read(pages: ServedPages, headers: dict[str, str]) -> None:
    """What it lacks is said."""
    own = {name: value.format(port=pages.port) for name, value in headers.items()}
    assert [send(pages, form, "POST", "a=b", **own).status for form in FORMS] == [400, 400]


def test_store_is_opened_to_be_read_without_allow_actions(url: str) -> None:
    """There are no forms, nothing answers to them, and the database was opened for reading."""
    with served_pages(url) as pages:
        for page in ("/questions", OF_SESSION[1]):
            assert 'method="post"' not in send(pages, page).body
        own = {"origin": f"http://127.0.0.1:{pages.port}"}
        assert [send(pages, form, "POST", "a=b", **own).status for form in FORMS] == [404, 404]
        process, database = Path(f"/proc/{pages.process.pid}"), url.removeprefix("sqlite:///")
        files = [file.name for file in (process / "fd").iterdir() if str(file.resolve()) == database]
        texts = [(process / "fdinfo" / name).read_text("utf-8") for name in files]
    modes = [int(mode, 8) & os.O_ACCMODE for text in texts for mode in re.findall(r"(?m)^flags:\s+(\d+)", text)]
    assert {*modes} == {os.O_RDONLY}


# ---------------------------------------------------------------------------------------------------- paths and headers


@pytest.mark.parametrize(
    "path",
    [
        *("/static/../view.css", "/static/..%2fview.css", "/static/%2e%2e/%2e%2e/render.py", "/static/..%5crender.py"),
        *(
            "/static//etc/passwd",
            "/static/%2fetc%2fpasswd",
            "/static/page.html",
            "/static/",
            "/static/view.css%00.html",
        ),
        *("/static/../../../../../../etc/passwd", "/../etc/passwd", "/static/....//view.css"),
    ],
)
@pytest.mark.short(12)
def test_no_path_leads_to_another_file(pages: ServedPages, path: str) -> None:
    """Three files are served, by their names."""
    answer = send(pages, path)
    assert answer.status == 404
    assert "root:" not in answer.body


HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
POLICY = {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"}


@pytest.mark.parametrize(
    "target,status,headers",
    [
        *((route, 200, {}) for route in (*ROUTES[:6], *OF_SESSION)),
        *((route, 404, {}) for route in ("/none", "/static/none", "/run?session=none", "/call?session=loop&call=none")),
        *((route, 400, {}) for route in ("/run", "/events?session=loop&after=x", "/?state=none", "/?after=none")),
        ("/", 403, {"cookie": ""}),
        ("/", 421, {"host": "evil.example"}),
    ],
)
@pytest.mark.short(18)
def test_each_answer_has_the_headers_that_protect_it(
    pages: ServedPages, target: str, status: int, headers: dict[str, str]
) -> None:
    """Errors and files, too: no script of others, no frame, no cache, no other type, no referrer, no server's name."""
    answer = send(pages, target, **headers)
    assert answer.status == status
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    policy = {*answer.headers["content-security-policy"].split("; ")}
    assert policy >= POLICY
    assert not any("unsafe" in part or "*" in part for part in policy)
    assert "server" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.short(0)
def test_failure_of_the_store_is_explained(tmp_path: Path) -> None:
    """Without a traceback, and with the same headers."""
    url = f"sqlite:///{tmp_path}/desk.db"
    Loop(url, calls=(pay_call(),)).waits()
    with served_pages(url) as pages:
        (tmp_path / "desk.db").write_bytes(b"no database" * 1_000)
        answer = send(pages, "/effects")
        assert (answer.status, answer.headers["x-frame-options"]) == (503, "DENY")
        assert "Traceback" not in answer.body


# --------------------------------------------------------------------------------------------------------- the process


def test_viewers_of_one_session_all_see_what_comes(pages: ServedPages, url: str) -> None:
    """Twenty browsers on one store; it is read once for all of them."""
    with stores.open(url) as store, Session.open(store, "busy") as session:
        door = executor(tool("scribble", scribble), session=session)
        with ThreadPoolExecutor(20) as viewers:
            followed = [viewers.submit(_follow, pages, "busy", b"last") for _ in range(20)]
            for number in range(3):
                door.execute(call("note", f"number {number}", id=f"c{number}"))
            door.execute(ToolCall("last", "note", {"text": "last"}))
            assert [future.result() for future in followed] == [True] * 20


def _follow(pages: ServedPages, session: str, awaited: bytes) -> bool:
    # Reads what comes to a session until something comes.
    head = f"GET /events?session={session} HTTP/1.1\r\nhost: localhost\r\ncookie: {pages.cookie}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", pages.port), timeout=30) as connection:
        connection.sendall(head.encode())
        read = b""
        while awaited not in read and (data := connection.recv(65_536)):
            read += data
        return awaited in read


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_server_though_a_browser_follows(url: str) -> None:
    """Its address is all that it has printed: no request, no token and no traceback."""
    with served_pages(url) as pages, socket.create_connection(("127.0.0.1", pages.port)) as connection:
        head = f"GET /events?session={SESSION} HTTP/1.1\r\nhost: localhost\r\ncookie: {pages.cookie}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 OK")
        pages.process.send_signal(signal.SIGINT)
        assert pages.process.wait(timeout=20) == 130
