"""The desk's side of the payment service: starting it, asking it, stopping it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote

from handrail.serde import parse
from payment_service import Paid

PROGRAM = Path(__file__).with_name("payment_service.py")
"""What runs as the service."""

PATIENCE_SECONDS = 10.0
"""How long an answer is waited for, and how long the service may take to end."""


@dataclass(frozen=True, slots=True)
class Payments:
    """The payment service that listens on a port of this machine. Threads may share it."""

    port: int

    def pay(self, order_id: str, amount_cents: int, *, key: str) -> Paid:
        """Have a refund paid; `key` is forwarded as the idempotency key.

        Raises:
            ConnectionError: there was no answer. Whether the refund was paid is unknown.
        """
        body = json.dumps({"order_id": order_id, "amount_cents": amount_cents})
        _, answer = self._ask("POST", "/refunds", body, {"Idempotency-Key": key})
        return parse(Paid, answer)

    def find(self, key: str) -> Paid | None:
        """The refund that was paid for that key, if one was.

        Raises:
            ConnectionError: there was no answer.
        """
        status, answer = self._ask("GET", f"/refunds?key={quote(key)}")
        return None if status == 404 else parse(Paid, answer)  # noqa: PLR2004 - HTTP's word for it

    def counts(self) -> dict[str, int]:
        """How often each order was refunded, as the service counts.

        Raises:
            ConnectionError: there was no answer.
        """
        _, answer = self._ask("GET", "/counts")
        counts: dict[str, int] = json.loads(answer)
        return counts

    def _ask(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)) as connection:
            try:
                connection.request(method, path, body, headers or {})
                response = connection.getresponse()
                return response.status, response.read()
            except (OSError, HTTPException) as error:
                raise ConnectionError(f"the payment service did not answer ({type(error).__name__})") from error


@contextmanager
def running_service(*, lose_answers_for: Sequence[str] = (), book_late_for: Sequence[str] = ()) -> Generator[Payments]:
    """A payment service for the time of the block; whatever ends the block ends the service.

    Args:
        lose_answers_for: orders whose first refund is paid without an answer.
        book_late_for: orders whose first look-up does not find the refund yet.
    """
    options = [option for order in lose_answers_for for option in ("--lose-answer-for", order)]
    options += [option for order in book_late_for for option in ("--book-late-for", order)]
    command = [sys.executable, str(PROGRAM), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own program
        try:
            yield Payments(_port_of(process))
        finally:
            _stop(process)


def _port_of(process: subprocess.Popen[bytes]) -> int:
    """What the service prints once it listens."""
    line = process.stdout.readline() if process.stdout else b""
    if not line:
        raise RuntimeError("the payment service ended before it listened; what it printed above says why")
    return int(line)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
