"""The payment service: a process of its own that pays refunds and counts them.

It is as bad as a payment service may be. It honours no idempotency key, so a refund that is asked for twice is paid
twice, as `GET /counts` shows; it can lose its answer after it has paid, and it can book a refund so late that the
first look-up does not find it. It binds to a free port of this machine, prints that port as its first line, and ends
when its standard input does: no caller can leave it behind, not even by dying.

    POST /refunds          {"order_id", "amount_cents"}, header Idempotency-Key; pays, and answers with the refund
    GET  /refunds?key=...  the first refund that was paid for that key, or 404
    GET  /counts           how often each order was refunded
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Paid:
    """One refund that was paid."""

    refund_id: str
    order_id: str
    amount_cents: int
    key: str


@dataclass(slots=True)
class Book:
    """What was paid so far, in the order of payment; and what is to go wrong.

    Attributes:
        lose_answers_for: the next refund of these orders is paid without an answer.
        book_late_for: the next look-up of a refund of these orders does not find it yet.
    """

    lose_answers_for: set[str]
    book_late_for: set[str]
    paid: list[Paid] = field(default_factory=list[Paid])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def pay(self, order_id: str, amount_cents: int, key: str) -> tuple[Paid, bool]:
        """Pay, whether it was paid before or not; also says whether the caller is to learn of it."""
        with self.lock:
            paid = Paid(f"rf-{len(self.paid) + 1:03}", order_id, amount_cents, key)
            self.paid.append(paid)
            answered = order_id not in self.lose_answers_for
            self.lose_answers_for.discard(order_id)
            return paid, answered

    def find(self, key: str) -> Paid | None:
        """The first refund that was asked for with that key, if it is booked by now."""
        with self.lock:
            paid = next((paid for paid in self.paid if paid.key == key), None)
            if paid is not None and paid.order_id in self.book_late_for:
                self.book_late_for.discard(paid.order_id)
                return None
            return paid

    def counts(self) -> dict[str, int]:
        """How often each order was refunded."""
        with self.lock:
            return dict(Counter(paid.order_id for paid in self.paid))


class Service(ThreadingHTTPServer):
    """The server and its book."""

    def __init__(self, book: Book) -> None:
        """Bind to a free port of this machine."""
        super().__init__(("127.0.0.1", 0), Answers)
        self.book = book


class Answers(BaseHTTPRequestHandler):
    """Answers one request."""

    @property
    def book(self) -> Book:
        """The book of the service."""
        return cast("Service", self.server).book  # nobody else makes these

    def do_POST(self) -> None:
        """Pay a refund."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Idempotency-Key", "")
        paid, answered = self.book.pay(asked["order_id"], asked["amount_cents"], key)
        if answered:
            self._answer(201, asdict(paid))
        else:
            self.close_connection = True  # paid, and the connection breaks before the answer

    def do_GET(self) -> None:
        """Say what was paid."""
        url = urlsplit(self.path)
        if url.path == "/counts":
            self._answer(200, self.book.counts())
            return
        paid = self.book.find(parse_qs(url.query).get("key", [""])[0])
        self._answer(404 if paid is None else 200, {} if paid is None else asdict(paid))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: ANN401 - as http.server declares it
        """Keep quiet: the trace shows what happens."""

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description="A payment service that pays every refund it is asked for.")
    parser.add_argument("--lose-answer-for", action="append", default=[], metavar="ORDER", help="lose one answer")
    parser.add_argument("--book-late-for", action="append", default=[], metavar="ORDER", help="hide one refund once")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the desk, which then closes our standard input
    with Service(Book(set(options.lose_answer_for), set(options.book_late_for))) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        print(service.server_port, flush=True)
        sys.stdin.read()
        service.shutdown()


if __name__ == "__main__":
    main()
