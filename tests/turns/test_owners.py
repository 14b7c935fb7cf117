"""Whose turn it is: participants that carry their own, and those for which one is kept."""

from __future__ import annotations

import pytest

from handrail.turns import HasTurn, Turn, find_turn, own_turn


class Plain:
    """A participant that carries no turn."""


class Carrier:
    """A participant that carries its own turn."""

    def __init__(self) -> None:
        self.turn = Turn()


def test_a_participant_that_carries_a_turn_takes_it() -> None:
    """It is always the same one."""
    carrier = Carrier()
    assert isinstance(carrier, HasTurn)
    assert own_turn(carrier) is find_turn(carrier) is carrier.turn


def test_a_turn_is_kept_for_a_participant_that_carries_none() -> None:
    """By identity, and for as long as it lives."""
    one, other = Plain(), Plain()
    turn = find_turn(one)
    assert find_turn(one) is turn
    assert find_turn(other) is not turn
    assert own_turn(one) is None
    del one
    heirs = [Plain() for _ in range(50)]
    assert all(find_turn(heir) is not turn for heir in heirs)


def test_an_attribute_of_that_name_which_is_no_turn_is_not_taken_for_one() -> None:
    """A game has turns of another kind."""

    class Game:
        turn = 3

    game = Game()
    assert own_turn(game) is None
    assert find_turn(game) is find_turn(game)


def test_a_participant_for_which_no_turn_can_be_kept_is_refused() -> None:
    """It carries none, and cannot be weakly referenced."""

    class Closed:
        __slots__ = ()

    with pytest.raises(TypeError, match="weak reference"):
        find_turn(Closed())
