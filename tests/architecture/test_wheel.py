"""What is shipped: the wheel runs what the README shows without the checkout, and the sources in the archive make it.

The short form looks into the wheel; the full one installs it, on each Python that uv finds. No Python is downloaded.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from functools import partial
from pathlib import Path

import pytest

import handrail
from hatch_build import read_version, repository_urls, with_links
from scripts.release_check import (
    UV,
    build,
    faults_of_metadata,
    faults_of_release,
    faults_of_wheel,
    install,
    run,
    type_line,
    unpack,
)
from tests.architecture.sources import ROOT, listed, text_files
from tests.docs.kit import comparable, read_commands, unwrapped
from tests.docs.test_code import README, shown_below, with_code
from tests.docs.typed_pages import DOCS, File, follow, read_steps, typed_pages
from tests.extent import FULL
from tests.providers.chat import Chat
from tests.providers.messages import Messages
from tests.providers.responses import Responses
from tests.providers.wire import serving

_INSTALLS = re.compile(r"`pip install ([a-z0-9 -]+)`")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
NEEDS = {
    "": "handrail.prompt, handrail.runtime, handrail.adapters.tool_executor, handrail.store, handrail.contrib.tools",
    "pydantic-ai": "handrail.adapters.pydantic_ai",
    "openai": "handrail.adapters.openai, openai",
    "anthropic": "handrail.adapters.anthropic, anthropic",
    "agents": "handrail.agents",
    "langgraph": "handrail.adapters.langgraph",
    "mcp": "handrail.adapters.mcp.proxy, handrail.adapters.mcp.http, handrail.cli.mcp",
    "pydantic-ai-mcp": "pydantic_ai.mcp",
    "testing": "handrail.testing.script_file",
    "cli": "handrail.cli.application",
    "postgres": "handrail.store.postgres",
    "python": "pydantic_monty",
    "telemetry": "handrail.telemetry",
    "schemas": "handrail.serde.schema_codec",
    "view": "handrail.view.export, handrail.view.server, handrail.cli.view",
    "worker": "handrail.worker, handrail.worker.procrastinate_queue, handrail.cli.worker",
    "demo": "handrail.adapters.pydantic_ai, handrail.testing.script_file, handrail.view.export, rich",
    "all": "handrail.agents, handrail.cli.application, handrail.store.postgres, pydantic_monty, mcp, openai, anthropic",
}
"""What can be imported with each extra, and with none."""


def test_every_extra_is_tried() -> None:
    """A new extra takes its place in the table."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*project["optional-dependencies"]} == {*NEEDS} - {""}


def test_the_links_of_the_readme_lead_into_the_repository_from_elsewhere() -> None:
    """An index page shows the README, and has none of its files; without a repository there are none."""
    text = README.read_text(encoding="utf-8")
    address = "https://example.org/handrail/blob/v1"
    targets = re.findall(r"\]\(([^()\s]+)\)", with_links(text, address))
    assert [target for target in targets if not target.startswith("https://")] == []
    inside = {target.removeprefix(f"{address}/").partition("#")[0] for target in targets if target.startswith(address)}
    assert "docs/how-to/own-loop.md" in inside
    assert [path for path in inside if not (ROOT / path).exists()] == []
    assert f"]({address.replace('/blob/', '/raw/')}/docs/how-to/pictures/view-run.png)" in with_links(text, address)
    without = with_links(text, "")
    assert "view-run.png" not in without
    assert "!A run" not in without
    assert re.findall(r"\]\((?!https?://)[^()\s]+\)", without) == []
    assert all(step.text in without for step in read_steps(README) if isinstance(step, File))


def _python(version: str) -> str:
    """The Python of a version, as `scripts/other-pythons.sh` finds it; nothing if there is none."""
    own = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    path = os.pathsep.join([*map(str, own.glob(f"versions/{version}.*/bin")), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "UV_PYTHON_DOWNLOADS": "never"}
    command = [str(UV), "python", "find", "--no-project", version]
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False).stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build(ROOT, folder, "--wheel")
    return next(folder.glob("*.whl"))


def test_a_wheel_has_the_modules_the_pages_and_the_types(wheel: Path) -> None:
    """And nothing else of the repository."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    version = read_version(ROOT)
    assert [*faults_of_wheel(wheel, version), *faults_of_metadata(metadata, version)] == []
    pages = {f"handrail/docs/{page.relative_to(ROOT / 'docs')}" for page in (ROOT / "docs").rglob("*.md")}
    pages |= {"handrail/README.md", "handrail/CHANGELOG.md", "handrail/SECURITY.md"}
    assert pages | {"handrail/__init__.py"} <= {*names}
    assert with_links(README.read_text(encoding="utf-8"), "").splitlines()[-1] in metadata


def test_the_version_is_that_of_the_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout that has not changed since; else, and in a folder of another repository, that of the code."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    root = tmp_path / "checkout"
    module = root / "src" / "handrail" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text(f'__version__ = "{handrail.__version__}"\n', encoding="utf-8")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a", "-c", "tag.gpgSign=false")
    for each in ("init --quiet", "add .", "commit --quiet --message=a", "tag v1.2.3a4"):
        run(*git, *each.split(), cwd=root)
    assert read_version(root) == "1.2.3a4"
    inside = root / "inside"
    inside.mkdir()
    (root / "src").rename(inside / "src")
    assert read_version(inside) == handrail.__version__  # it has no `.git`
    (inside / "src").rename(root / "src")
    module.write_text('__version__ = "0"\n', encoding="utf-8")
    assert read_version(root) == "0"


def test_a_checkout_says_that_it_is_not_a_release() -> None:
    """And a release has a heading in the changelog."""
    assert handrail.__version__.endswith(".dev0")
    assert [*faults_of_release(handrail.__version__)] == []
    assert len([*faults_of_release("999.0")]) == 1


def test_the_addresses_are_those_of_the_repository_that_builds() -> None:
    """Elsewhere there are none."""
    assert repository_urls({}) == {}
    urls = repository_urls({"GITHUB_SERVER_URL": "https://example.org", "GITHUB_REPOSITORY": "Shop/handrail"})
    assert urls["Repository"] == "https://example.org/Shop/handrail"
    assert urls["Documentation"] == "https://shop.github.io/handrail/"
    assert {name for name, url in urls.items() if not url.startswith("https://")} == set()


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what is in the wheel."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.mark.parametrize("version", ["own", *(VERSIONS if FULL else ())])
@pytest.mark.timeout(200)  # it makes an environment
@pytest.mark.short(0)
def test_what_the_readme_has_a_newcomer_type_works(version: str, wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    """From a fresh environment of each Python that uv finds; the short form runs one command, unpacked."""
    where: dict[str, str] = {}
    command: list[object] = [sys.executable, "-m", "handrail"]
    if version == "own":
        where["PYTHONPATH"] = str(unpacked)
    elif python := _python(version):
        command = [install(tmp_path, python, wheel, ["agents", "cli"]) / "handrail"]
    else:
        assert version not in sys.version, "uv finds the Python that runs the tests"
        return
    typed = [command for command in read_commands(README) if command[0].startswith("handrail ")]
    for line, shown in typed if FULL else typed[:1]:
        found = run(*command, *shlex.split(line)[1:], cwd=tmp_path, **where)
        # The answer goes to standard output; what a run reports goes to standard error.
        assert found
        assert comparable(found) in comparable(shown)
    assert run(*command, "docs", "write-a-tool", cwd=tmp_path, **where).startswith("# Write a tool\n")


@pytest.fixture(scope="module")
def everything(wheel: Path, unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a fresh environment with the wheel, all extras, pytest, and what pages say that they need.

    The short form has the wheel unpacked.
    """
    if not FULL:
        return {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(unpacked)}
    folder = tmp_path_factory.mktemp("everything")
    programs = install(folder, sys.executable, wheel, ["all"])
    pins = ("--constraints", folder / "pins.txt")
    texts = (page.read_text("utf-8") for page in (*with_code(), *typed_pages()))
    wanted = {name for text in texts for names in _INSTALLS.findall(text) for name in names.split()}
    run(UV, "pip", "install", "--quiet", "--python", programs.parent, *pins, "pytest", *sorted(wanted), cwd=folder)
    return {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("page", [README, *typed_pages()] if FULL else [README], ids=lambda page: page.stem)
@pytest.mark.timeout(200)  # it may make an environment
def test_what_a_page_has_a_reader_type_works_from_wheel(page: Path, everything: dict[str, str], tmp_path: Path) -> None:
    """Each program and each command, unchanged; the short form types one page."""
    follow(page, tmp_path, partial(type_line, variables=everything))


@pytest.mark.parametrize(
    "page",
    with_code() if FULL else [DOCS / "how-to" / "tune-prompts.md"],
    ids=lambda page: page.stem,
)
@pytest.mark.timeout(200)  # it may make an environment
def test_the_programs_of_a_page_run_from_the_wheel(page: Path, everything: dict[str, str], tmp_path: Path) -> None:
    """The blocks of a page one after the other, as one program, with what it prints; the short form runs one page."""
    blocks = with_code()[page]
    program = "\n".join(block.source for block in blocks)
    # Logfire asks for an account; `logfire_api` is what libraries use where it is not installed.
    program = program.replace("import logfire\n", "import logfire_api as logfire\n")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    with serving(Chat(), Responses(), Messages()) as provider:
        found = run("python", "program.py", cwd=tmp_path, **everything, **provider.environment())
    assert unwrapped(found) == unwrapped("".join(map(shown_below, blocks)))


@pytest.mark.parametrize("extra", NEEDS if FULL else ["cli"])
@pytest.mark.timeout(200)  # it makes an environment
def test_an_extra_installs_what_it_is_named_after(extra: str, wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    """In a fresh environment, without a warning; the short form uses this one, which has all of them."""
    python, where = Path(sys.executable), {"PYTHONPATH": str(unpacked)}
    if FULL:
        python, where = install(tmp_path, sys.executable, wheel, [extra] if extra else []) / "python", {}
    run(python, "-W", "error", "-c", f"import {NEEDS[extra]}", cwd=tmp_path, **where)


@pytest.mark.timeout(200)  # it builds two times
def test_the_archive_of_sources_has_what_is_needed_and_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Every file of the repository, and the wheel byte for byte; the short form compares the names at the top."""
    at_top = {path.parts[0] for path, _ in text_files()}
    if not FULL:
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        included = {name.strip("/") for name in settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
        added = {"pyproject.toml", ".gitignore"}  # by hatchling
        assert {name for name in at_top if not name.endswith(".md")} == included - {"*.md"} | added
        return
    build(ROOT, tmp_path, "--sdist")
    source = unpack(next(tmp_path.glob("*.tar.gz")), tmp_path)
    build(source, tmp_path, "--wheel")
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()
    missing = [str(path) for path, _ in text_files() if not (source / path).exists()]
    assert not missing, listed(missing)
