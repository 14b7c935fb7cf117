"""The file that describes MCP servers: what it says, and every fault with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.adapters.mcp.settings import passed_on, read_servers
from handrail.errors import DocumentError
from tests.wording import Wording

WHOLE = """
servers:
  bank:
    command: [python, bank.py]
    env: [BANK_TOKEN, REGION=eu]
    cwd: bank
    read: [balance, "get_*"]
    external: [pay]
    keys: {pay: [order]}
    forward_key: {pay: idempotency_key}
    reconcile:
      pay: {tool: find_payment, arguments: {order: order}, result: payment}
    timeout: 10
  web:
    url: https://web.example/mcp
    headers: {Authorization: "Bearer ${BANK_TOKEN}"}
    prefix: ""
    untrusted: false
"""


def test_file_says_how_servers_are_reached_and_what_their_tools_do(tmp_path: Path) -> None:
    """Secrets come from the environment, and no text of the settings shows them."""
    file = tmp_path / "servers.yaml"
    file.write_text(WHOLE)
    (bank, settings), (web, web_settings) = read_servers(file, {"BANK_TOKEN": "secret"})
    assert (bank.command, bank.cwd, bank.env) == (
        ("python", "bank.py"),
        tmp_path / "bank",
        {"BANK_TOKEN": "secret", "REGION": "eu"},
    )
    assert (settings.prefix, settings.read, settings.keys) == ("bank_", ("balance", "get_*"), {"pay": ("order",)})
    assert settings.reconcile["pay"].tool == "find_payment"
    assert (web.url, web.headers, web_settings.prefix) == (
        "https://web.example/mcp",
        {"Authorization": "Bearer secret"},
        "",
    )
    assert "secret" not in f"{bank} {web}"


FAULTS = {
    "empty": "",
    "no servers": "servers: {}",
    "not a mapping": "- bank",
    "unknown key": "servers: {bank: {command: [a], reads: [x]}}",
    "wrong kind": "servers: {bank: {command: python}}",
    "both": "servers: {bank: {command: [a], url: 'http://b'}}",
    "neither": "servers:\n  bank: {}",
    "variable": "servers:\n  bank:\n    command: [a]\n    env: [MISSING]",
    "header": "servers:\n  bank:\n    url: http://b\n    headers: {A: '${MISSING}'}",
    "several": "servers:\n  bank: {command: [a], timeout: -1}\n  web: {command: [a], url: 'http://b'}",
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_said_with_its_place(name: str, tmp_path: Path, wording: Wording) -> None:
    """Several faults of one file are all named."""
    file = tmp_path / "servers.yaml"
    file.write_text(FAULTS[name])
    with pytest.raises(DocumentError) as raised:
        read_servers(file, {})
    assert str(raised.value).replace(str(tmp_path), "FOLDER") == wording


def test_variables_are_passed_on_by_name_or_given(wording: Wording) -> None:
    """A variable that is not set is an error."""
    assert passed_on(["A", "B=1=2"], {"A": "x"}) == {"A": "x", "B": "1=2"}
    with pytest.raises(ValueError) as raised:
        passed_on(["C"], {})
    assert str(raised.value) == wording
