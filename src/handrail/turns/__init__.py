"""Fair turns: who may touch a session or a resource, and when. The rules stand in `handrail.turns.tickets`."""

from handrail.turns.owners import TakesTurns, own_turn, turn_of
from handrail.turns.tickets import Links, Ticket, Turn, draw

__all__ = ["Links", "TakesTurns", "Ticket", "Turn", "draw", "own_turn", "turn_of"]
