"""Which statements a handler may not execute."""

from __future__ import annotations

import pytest

from handrail.errors import SessionError
from handrail.store.sql.call_statements import check_statement
from tests.wording import Wording


@pytest.mark.parametrize(
    "sql",
    [
        *(
            "BEGIN",
            "begin transaction",
            "\n\tCommit;",
            "END",
            "ROLLBACK TO x",
            "ABORT",
            "START TRANSACTION",
            "RELEASE x",
        ),
        *("SAVEPOINT x", "PRAGMA journal_mode = DELETE", "ATTACH 'x' AS y", "SET LOCAL x = 1", "VACUUM", "DISCARD ALL"),
        *(
            ";;COMMIT",
            "-- a\n-- b\nCOMMIT",
            "/* a */COMMIT",
            "/*/**/ /* */*/ -- c\n COMMIT",
            "PREPARE  TRANSACTION 'a'",
            "PREPARE/**/TRANSACTION 'a'",
        ),
        *("\ufeffCOMMIT", "\ufeff;\ufeff BEGIN", "/* /* */ COMMIT", "/*/ a */ COMMIT", "-- a\rCOMMIT", "-- /*\rCOMMIT"),
    ],
)
def test_control_of_the_transaction_is_refused(sql: str, wording: Wording) -> None:
    """Also behind comments, blanks and semicolons, and in whatever letters."""
    with pytest.raises(SessionError) as raised:
        check_statement(sql)
    assert str(raised.value) == wording


@pytest.mark.parametrize(
    "sql",
    [
        *("SELECT 1", "INSERT INTO t VALUES ('COMMIT')", "UPDATE begin SET x = 1", "WITH x AS (SELECT 1) SELECT 1"),
        *("PREPARE x AS SELECT 1", "ENDS", "", "/* never closed COMMIT", "-- COMMIT", "(SELECT 1)", "*/ COMMIT"),
    ],
)
def test_other_statements_pass(sql: str) -> None:
    """What they mean is for the database to say."""
    check_statement(sql)
