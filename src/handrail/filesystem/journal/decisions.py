"""Whether a call has been committed, as far as the journal of its files is concerned.

The journal of a `HostFilesystem` outlives a crash, and so does what the call has written to a store. Which of the two
is to be believed is decided in one place: in the unit of work that commits the call, the store takes note of the
journal's id. A journal that is found later is discarded if the store knows it, and undone if not.
"""

from __future__ import annotations

import logging

from handrail.errors import HandrailError
from handrail.filesystem.journal.before_images import Images
from handrail.transaction.participants import DecisionStore

_LOGGER = logging.getLogger(__name__)


def forget(journal_id: str, store: DecisionStore, images: Images) -> None:
    """Have the store forget a journal that is gone; if it does not answer, the next opening tries again.

    Args:
        journal_id: the id of the journal, of which `settled-ID` is left.
        store: what has decided about it.
        images: the journal's folder.
    """
    try:
        store.forget_decision(journal_id)
        images.disk.discard(f"settled-{journal_id}".encode(), at=images.folder)
    except (HandrailError, OSError):
        _LOGGER.warning(
            "the store did not forget the journal %s; the next opening tries again", journal_id, exc_info=True
        )
