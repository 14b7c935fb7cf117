"""One agent inside a workflow of DBOS and outside of one, with and without a stored conversation: `... FOLDER`.

It prints what each run ended with, and how many messages the session has stored then.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import DynamicCapability
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.test import TestModel

import handrail.store
from handrail import tool
from handrail.adapters.pydantic_ai import HandrailCapability, StoredHistory
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import DurableEngineError
from handrail.runtime import Session


@tool
def note(text: str) -> str:
    """Note a text."""
    return f"noted: {text}"


def main(folder: Path) -> None:
    """Makes the runs."""
    DBOS(config=DBOSConfig(name="owners", system_database_url=f"sqlite:///{folder}/engine.db", log_level="CRITICAL"))

    def find_capability(ctx: RunContext[HandrailCapability]) -> HandrailCapability:
        return ctx.deps

    agent: Agent[HandrailCapability, str] = Agent(
        TestModel(),
        name="owners",
        deps_type=HandrailCapability,
        capabilities=[DBOSDurability(), DynamicCapability(find_capability, id="handrail")],
    )
    outcomes: dict[str, Any] = {}

    async def run(name: str, *, is_stored: bool) -> None:
        async with await Session.open_async(store, name) as session:
            stored = StoredHistory(session, "owners") if is_stored else None
            capability = HandrailCapability(ToolExecutor([note], session=session), conversation=stored)
            try:
                outcome = (await agent.run("Note it.", deps=capability)).output
            except DurableEngineError as error:
                outcome = f"{error.engine}: {error}"
            outcomes[name] = outcome, len(StoredHistory(session, "owners").history)

    @DBOS.workflow()
    async def workflow() -> None:
        await run("inside, stored", is_stored=True)
        await run("inside", is_stored=False)

    with handrail.store.open(f"sqlite:///{folder}/desk.db") as store:
        DBOS.launch()
        try:
            handle: Any = DBOS.start_workflow(workflow)
            handle.get_result()
            asyncio.run(run("outside, stored", is_stored=True))
        finally:
            DBOS.destroy()
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
