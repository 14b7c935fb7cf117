"""The README and the recipes are typed, all of them in each run; and what a recipe says of servers and clients."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import psycopg
import pytest

from handrail import store
from tests.adapters.mcp.kit import text
from tests.architecture.sources import ROOT
from tests.docs.test_mcp import client_of
from tests.docs.test_texts import count_words
from tests.docs.typed_pages import Command, File, Terminal, follow, read_steps
from tests.store.postgres_server import server_url

RECIPES = ROOT / "docs" / "recipes"
PAGES = sorted({*RECIPES.glob("*.md")} - {RECIPES / "README.md"})

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
@pytest.mark.short(1 + len(PAGES))
@pytest.mark.timeout(120)  # a page has up to a dozen commands
def test_a_recipe_works_as_it_is_typed(page: Path, at: Terminal, tmp_path: Path) -> None:
    """In an empty folder, from top to bottom."""
    assert {*map(type, read_steps(page))} == {File, Command}
    follow(page, tmp_path, at.type)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_recipe_fits_a_screen(page: Path) -> None:
    """30 to 50 lines of code without blank ones, and at most 200 words beside them."""
    content = page.read_text(encoding="utf-8")
    code = [line for kind, block in _BLOCK.findall(content) if kind != "console" for line in block.splitlines()]
    assert 30 <= sum(bool(line.strip()) for line in code) <= 50
    assert count_words(_BLOCK.sub("", content)) <= 200


def test_roles_of_postgresql_keep_tenants_apart(at: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the recipe makes them: each tenant's run is carried out in its schema, and no role reads another's tables."""
    page = RECIPES / "tenants.md"
    (statements,) = (block for kind, block in _BLOCK.findall(page.read_text(encoding="utf-8")) if kind == "sql")
    (program,) = (step.text for step in read_steps(page) if isinstance(step, File))
    (tmp_path / "tenants.py").write_text(program, encoding="utf-8")
    url = re.sub("//(?:[^@/]*@)?", "//{tenant}:secret@", server_url(), count=1)
    monkeypatch.setenv("SHOP_STORE", url)
    tenants = ("north", "south")
    with psycopg.connect(server_url(), autocommit=True) as admin:
        try:
            for tenant in tenants:
                admin.execute(statements.replace("north", tenant).encode())
                runpy.run_path(str(tmp_path / "tenants.py"))["ask"](tenant, "chat-1", f"A-{tenant}")
                own = url.format(tenant=tenant)
                at.type(f"handrail worker --agents tenants --queue {tenant} --drain --store {own} 2> log", tmp_path)
                assert f"A-{tenant} is paid" in at.type(f"handrail runs list --store {own}", tmp_path)
            with psycopg.connect(url.format(tenant="north")) as north, pytest.raises(psycopg.Error) as refused:
                north.execute("SELECT * FROM south.handrail_sessions")
            assert isinstance(refused.value, psycopg.errors.InsufficientPrivilege)
        finally:
            for tenant in tenants:
                admin.execute(f"DROP OWNED BY {tenant} CASCADE; DROP ROLE {tenant}".encode())


@pytest.mark.anyio
async def test_claude_code_is_configured_as_the_recipe_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of `.mcp.json` serves the tools; two payments of an order are one, and what no rule allows waits."""
    for step in read_steps(RECIPES / "claude-code.md"):
        if isinstance(step, File):
            (tmp_path / step.name).write_text(step.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    shop = json.loads((tmp_path / ".mcp.json").read_text(encoding="utf-8"))["mcpServers"]["shop"]
    assert shop["command"] == "handrail"
    async with client_of(shop["args"]) as client:
        paid = [text(await client.call_tool("pay", {"order": "A-1", "cents": 500})) for _ in range(2)]
        asked = await client.call_tool("pay", {"order": "A-2", "cents": 900})
    assert (["A-1 is paid" in each for each in paid], asked.is_error) == ([True, True], True)
    with store.open(shop["args"][-1], read_only=True) as calls:
        assert [(row.tool, row.status) for row in calls.rows()] == [("pay", "done")]
