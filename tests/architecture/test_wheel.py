"""What is shipped: the wheel runs what the README shows without the checkout, and the sources in the archive make it.

The short form looks into the wheel; the full one installs it, on each Python that uv finds. No Python is downloaded.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import handrail
from hatch_build import with_links
from tests.architecture.sources import ROOT, listed, text_files
from tests.docs.kit import comparable, read_commands, unwrapped
from tests.docs.test_code import README, shown_below, with_code
from tests.docs.typed_pages import DOCS, follow, split, typed_pages
from tests.extent import FULL
from tests.providers.chat import Chat
from tests.providers.messages import Messages
from tests.providers.responses import Responses
from tests.providers.wire import serving

UV = Path(sys.executable).parent / "uv"
PINS = ROOT / "requirements" / "dev.txt"
_INSTALLS = re.compile(r"`pip install ([a-z -]+)`")
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
    assert with_code()[README][0].source in without


def _run(*command: object, cwd: Path, **variables: str) -> str:
    environment = _hidden() | {"UV_PYTHON_DOWNLOADS": "never", **variables}
    words = [*map(str, command)]
    done = subprocess.run(
        words, cwd=cwd, env=environment, check=False, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _hidden() -> dict[str, str]:
    """The environment of the tests without what a newcomer does not have."""
    hidden = {"PYTHONPATH", "HANDRAIL_STORE", "HANDRAIL_MODEL", "OPENAI_API_KEY", "FORCE_COLOR", "HANDRAIL_TESTS"}
    hidden |= {"PYTHONDONTWRITEBYTECODE"}  # each command would compile PydanticAI anew
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _build(source: Path, target: Path, *kinds: str) -> None:
    options = ("--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", target)
    _run(UV, "build", *options, *kinds, source, cwd=source)


def _python(version: str) -> str:
    """The Python of a version, as `scripts/other-pythons.sh` finds it; nothing if there is none."""
    own = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    path = os.pathsep.join([*map(str, own.glob(f"versions/{version}.*/bin")), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "UV_PYTHON_DOWNLOADS": "never"}
    command = [str(UV), "python", "find", "--no-project", version]
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False).stdout.strip()


def _installed(folder: Path, python: str, wheel: Path, extras: Sequence[str]) -> Path:
    """The folder of commands of a fresh environment with the wheel; what it needs is of the pinned versions."""
    pins = folder / "pins.txt"
    pins.write_text(re.sub(r" \\\n    --hash=\S+| *#.*", "", PINS.read_text(encoding="utf-8")), encoding="utf-8")
    environment = folder / "environment"
    _run(UV, "venv", "--quiet", "--clear", "--python", python, environment, cwd=folder)
    wanted = f"handrail[{','.join(extras)}] @ {wheel.as_uri()}"
    _run(UV, "pip", "install", "--quiet", "--python", environment, "--constraints", pins, wanted, cwd=folder)
    return environment / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    _build(ROOT, folder, "--wheel")
    return next(folder.glob("*.whl"))


def test_a_wheel_has_the_modules_the_pages_and_the_types(wheel: Path) -> None:
    """And nothing else of the repository."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert {name.partition("/")[0] for name in names} == {"handrail", f"handrail-{handrail.__version__}.dist-info"}
    pages = {f"handrail/docs/{page.relative_to(ROOT / 'docs')}" for page in (ROOT / "docs").rglob("*.md")}
    pages |= {"handrail/README.md", "handrail/CHANGELOG.md", "handrail/SECURITY.md"}
    assert pages | {"handrail/py.typed", "handrail/__init__.py"} <= {*names}
    assert "\nDescription-Content-Type: text/markdown\n" in metadata
    assert with_links(README.read_text(encoding="utf-8"), "").splitlines()[-1] in metadata


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what is in the wheel."""
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)  # noqa: S202 - built here
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
        command = [_installed(tmp_path, python, wheel, ["agents", "cli"]) / "handrail"]
    else:
        assert version not in sys.version, "uv finds the Python that runs the tests"
        return
    for line, shown in [*read_commands(README)] if FULL else [next(read_commands(README))]:
        found = _run(*command, *shlex.split(line)[1:], cwd=tmp_path, **where)
        # The answer goes to standard output; what a run reports goes to standard error.
        assert found
        assert comparable(found) in comparable(shown)
    assert _run(*command, "docs", "write-a-tool", cwd=tmp_path, **where).startswith("# Write a tool\n")


@pytest.fixture(scope="module")
def everything(wheel: Path, unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a fresh environment with the wheel, all extras, pytest, and what pages say that they need.

    The short form has the wheel unpacked.
    """
    if not FULL:
        return {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(unpacked)}
    folder = tmp_path_factory.mktemp("everything")
    programs = _installed(folder, sys.executable, wheel, ["all"])
    pins = ("--constraints", folder / "pins.txt")
    wanted = {
        name for page in with_code() for names in _INSTALLS.findall(page.read_text("utf-8")) for name in names.split()
    }
    _run(UV, "pip", "install", "--quiet", "--python", programs.parent, *pins, "pytest", *sorted(wanted), cwd=folder)
    return {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(
    "page", typed_pages() if FULL else [DOCS / "tutorial" / "first-tool.md"], ids=lambda page: page.stem
)
@pytest.mark.timeout(200)  # it may make an environment
def test_what_a_page_has_a_reader_type_works_from_wheel(page: Path, everything: dict[str, str], tmp_path: Path) -> None:
    """Each program and each command, unchanged; the short form types one page."""

    def typing(line: str, folder: Path) -> str:
        words, errors = split(line)
        stderr = subprocess.PIPE if errors else subprocess.STDOUT
        done = subprocess.run(
            words, cwd=folder, env=_hidden() | everything | {"PYTHONUNBUFFERED": "1"}, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8",
        )  # fmt: skip
        if errors:
            (folder / errors).write_text(done.stderr, encoding="utf-8")
        return done.stdout + ("Killed\n" if done.returncode == -signal.SIGKILL else "")

    follow(page, tmp_path, typing)


@pytest.mark.parametrize(
    "page",
    [page for page in with_code() if page != README] if FULL else [DOCS / "how-to" / "tune-prompts.md"],
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
        found = _run("python", "program.py", cwd=tmp_path, **everything, **provider.environment())
    assert unwrapped(found) == unwrapped("".join(map(shown_below, blocks)))


@pytest.mark.parametrize("extra", NEEDS if FULL else ["cli"])
@pytest.mark.timeout(200)  # it makes an environment
def test_an_extra_installs_what_it_is_named_after(extra: str, wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    """In a fresh environment, without a warning; the short form uses this one, which has all of them."""
    python, where = Path(sys.executable), {"PYTHONPATH": str(unpacked)}
    if FULL:
        python, where = _installed(tmp_path, sys.executable, wheel, [extra] if extra else []) / "python", {}
    _run(python, "-W", "error", "-c", f"import {NEEDS[extra]}", cwd=tmp_path, **where)


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
    _build(ROOT, tmp_path, "--sdist")
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / wheel.name.partition("-py3")[0]
    _build(source, tmp_path, "--wheel")
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()
    missing = [str(path) for path, _ in text_files() if not (source / path).exists()]
    assert not missing, listed(missing)
