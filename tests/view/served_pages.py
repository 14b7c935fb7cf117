"""`handrail view` as a process of its own, and raw requests to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}


@dataclass(frozen=True)
class ServedPages:
    """The process.

    Attributes:
        process: it.
        address: the address that it has printed, which lets a browser in.
    """

    process: subprocess.Popen[str]
    address: str

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return urlsplit(self.address).port or 0

    @property
    def token(self) -> str:
        """The token of its start."""
        return parse_qs(urlsplit(self.address).query)["token"][0]

    @property
    def base(self) -> str:
        """The address of its pages, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def cookie(self) -> str:
        """The header that a browser sends which was let in."""
        return f"handrail-{self.port}={self.token}"


@contextmanager
def served_pages(url: str, *words: str) -> Generator[ServedPages]:
    """The pages of a store, served for the time of the block; all that the process prints is its address."""
    command = [sys.executable, "-m", "handrail", "view", *words, "--store", url]
    out, errors = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, text=True, stdout=out, stderr=errors) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert "http://127.0.0.1:" in line, line + process.stdout.read()
            yield ServedPages(process, line.split()[-1])
        finally:
            process.terminate()
        rest = process.stdout.read()
        assert rest == "Ctrl-C ends them.\n", rest


@dataclass(frozen=True)
class Answer:
    """An answer to a raw request.

    Attributes:
        status: its status.
        headers: its headers, by their names in lower case.
        body: its body.
        cookies: the cookies that it sets.
    """

    status: int
    headers: dict[str, str]
    body: str
    cookies: list[str] = field(default_factory=list[str])


def send(pages: ServedPages, target: str, method: str = "GET", body: str = "", **headers: str) -> Answer:
    """The answer to a request exactly as it is written, as a browser that was let in; `None` leaves a header out."""
    lines = {"host": f"127.0.0.1:{pages.port}", "cookie": pages.cookie, "connection": "close"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    if body:
        lines |= {"content-type": "application/x-www-form-urlencoded", "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    with socket.create_connection(("127.0.0.1", pages.port)) as connection:
        connection.sendall(f"{method} {target} HTTP/1.1\r\n{head}\r\n{body}".encode())
        response = HTTPResponse(connection, method=method)
        response.begin()
        fields = {name.lower(): value for name, value in response.getheaders()}
        cookies = response.headers.get_all("set-cookie") or []
        return Answer(response.status, fields, response.read().decode(), cookies)
