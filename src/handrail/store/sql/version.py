"""The version of the tables, which every unit of work compares: a newer Handrail may have migrated them meanwhile.

A statement that stands alone has the condition `IS_CURRENT`, so that it writes nothing in tables of another version; a
transaction asks for the version as it begins (`Database.transaction`). On PostgreSQL a migration locks the row against
reading, so no unit that has found the old version is still under way when the tables change. No unit takes a
round trip more.
"""

from __future__ import annotations

from handrail.errors import StoreError, StoreVersionError
from handrail.store.sql.driver import Rows, StatementExecutor

TABLES_VERSION = 1
"""The version that the statements of this Handrail are written for."""

GET_VERSION = "SELECT version FROM handrail_schema"
"""The version of the tables."""

IS_CURRENT = f"EXISTS (SELECT 1 FROM handrail_schema WHERE version = {TABLES_VERSION})"  # noqa: S608 - a number of ours
"""Whether the tables have the version of this Handrail."""


def check_version(executor: StatementExecutor, store: str) -> None:
    """Find out whether a statement that has written nothing was refused for the version of the tables.

    Raises:
        StoreVersionError: it was.
        StoreError: the store does not answer.
    """
    check_found(executor.query(GET_VERSION), store)


def check_found(found: Rows, store: str) -> None:
    """Refuse to write to tables of another version.

    Args:
        found: the answer to `GET_VERSION`.
        store: the URL of the store.

    Raises:
        StoreVersionError: they have one.
        StoreError: they have none.
    """
    versions = [version for (version,) in found]
    if versions == [TABLES_VERSION]:
        return
    if len(versions) != 1 or type(versions[0]) is not int:
        raise StoreError(f"{store} does not say any more which version its tables have; open it again", store=store)
    msg = (
        f"{store} was migrated to version {versions[0]} while this process had it open, and this Handrail knows "
        f"versions up to {TABLES_VERSION}. End this process, and start it with the Handrail that has migrated the "
        "store; nothing was written"
    )
    raise StoreVersionError(msg, store=store, found=versions[0], known=TABLES_VERSION)
