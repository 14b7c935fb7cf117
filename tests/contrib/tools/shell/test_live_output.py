"""The output of a program while it runs: in pieces, bounded, and with word of its silence."""

from __future__ import annotations

from handrail.contrib.tools.shell.process import MOST_LIVE_BYTES, QUIET_SECONDS, LiveOutput


class Listener:
    """Notes what it is notified of."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, float]] = []
        self.live = LiveOutput(lambda text, quiet: self.heard.append((text, quiet)))


def test_output_is_passed_on_in_pieces() -> None:
    """The first at once, the next after a pause, with all that came meanwhile."""
    listener = Listener()
    assert listener.live.pass_on(100.0) == QUIET_SECONDS
    listener.live.add(b"a")
    assert listener.live.pass_on(101.0) == QUIET_SECONDS
    for chunk in (b"b", b"c"):
        listener.live.add(chunk)
        assert 0 < listener.live.pass_on(101.1) < 0.2
    assert listener.heard == [("a", 0.0)]
    listener.live.pass_on(101.3)
    assert listener.heard == [("a", 0.0), ("bc", 0.0)]


def test_only_the_end_of_much_output_is_passed_on() -> None:
    """A person reads what is new; the result has more."""
    listener = Listener()
    listener.live.add(b"a" * MOST_LIVE_BYTES)
    listener.live.add(b"b" * 10)
    listener.live.finish()
    assert listener.heard == [("a" * (MOST_LIVE_BYTES - 10) + "b" * 10, 0.0)]


def test_characters_are_not_divided_between_pieces() -> None:
    """And what is no text has signs in its place."""
    listener = Listener()
    for part in ("é".encode()[:1], "é".encode()[1:], b"\0"):
        listener.live.add(part)
        listener.live.finish()
    assert [text for text, _ in listener.heard] == ["é", "\u2400"]


def test_program_that_writes_nothing_is_reported_after_ten_seconds_and_then_less_and_less() -> None:
    """Until it writes again."""
    listener = Listener()
    listener.live.pass_on(0.0)
    assert listener.live.pass_on(9.0) == 1.0
    assert listener.live.pass_on(10.0) == 10.0
    assert listener.live.pass_on(20.0) == 20.0
    listener.live.add(b"a")
    assert listener.live.pass_on(30.0) == 10.0
    listener.live.pass_on(40.0)
    assert listener.heard == [("", 10.0), ("", 20.0), ("a", 0.0), ("", 10.0)]
