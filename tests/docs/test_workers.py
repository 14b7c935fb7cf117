"""The page on workers: its commands on a server, its unit of systemd and its compose file."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from configparser import ConfigParser
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from handrail.cli.application import application
from handrail.cli.worker import run_worker
from tests.docs.typed_pages import DOCS, Terminal, follow
from tests.store.postgres_server import fresh_url

PAGE = DOCS / "how-to" / "scale-out.md"
SQLITE = "sqlite:///desk.db"


def block(kind: str, which: int = 0) -> str:
    """A block of the page."""
    found: list[str] = re.findall(
        rf"^```{kind}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return found[which]


@pytest.mark.timeout(120)  # eight commands, two of which start a worker
def test_the_page_works_on_a_server_too(at: Terminal, tmp_path: Path) -> None:
    """As it is typed, with the URL of PostgreSQL: the same runs come to the same end."""
    with fresh_url() as url:
        page = tmp_path / PAGE.name
        page.write_text(PAGE.read_text(encoding="utf-8").replace(SQLITE, url), encoding="utf-8")
        follow(page, tmp_path, at.type)


def parsed(line: str) -> dict[str, Any]:
    """The arguments of the command that a line of `handrail` calls."""
    command, bound, _ = application().parse_args(shlex.split(line), exit_on_error=False, print_error=False)
    assert command is run_worker
    return dict(bound.arguments)


def test_the_unit_gives_a_worker_more_time_than_it_gives_its_runs() -> None:
    """It is started again whenever it has ended, and killed only after the time of `--grace`."""
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    unit.read_string(block("ini").replace("\\\n", ""))
    service = unit["Service"]
    arguments = parsed(service["ExecStart"].partition("/bin/handrail ")[2])
    assert timedelta(seconds=int(service["TimeoutStopSec"])) > arguments["grace"]
    assert (arguments["health"], service["Restart"], service["KillSignal"]) == (8080, "always", "SIGTERM")


def test_the_compose_file_starts_two_workers_of_the_image() -> None:
    """Each has the store in its environment, and more time to stop than its runs have by default."""
    reader: Any = YAML(typ="safe")
    worker = reader.load(block("yaml", 1))["services"]["worker"]
    entry: list[str] = json.loads(block("dockerfile").partition("ENTRYPOINT ")[2])
    assert entry[0] == "handrail"
    assert parsed(shlex.join(entry[1:]))["agents"] == ("clerk.agent", "desk")
    grace: timedelta = inspect.signature(run_worker).parameters["grace"].default
    assert timedelta(seconds=int(worker["stop_grace_period"].rstrip("s"))) > grace
    assert (worker["deploy"]["replicas"], worker["restart"]) == (2, "always")
    assert worker["environment"]["HANDRAIL_STORE"].startswith("postgresql://")
