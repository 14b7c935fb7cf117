"""Replay of recorded sessions against the program of today: the same replies, copies of everything, and a comparison.

    replay = await replay(session, desk_executor)
    assert replay.equal, replay.differences[0]

`handrail.replay.guard` says what comes from the record, and `handrail.replay.journal` what is compared.
"""

from handrail.replay.journal import Difference
from handrail.replay.recording import Recording
from handrail.replay.replaying import Replay, replay

__all__ = ["Difference", "Recording", "Replay", "replay"]
