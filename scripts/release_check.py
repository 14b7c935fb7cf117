"""`make release-check`: builds what is released into `dist`, and tries it as one does who installs it.

It checks the metadata and the contents of the wheel and of the archive of sources, builds the wheel again from that
archive, and installs it with all extras into a fresh environment, where the example of the README and the command run.
It exits with 1 if anything is wrong. `tests/architecture/test_wheel.py` uses its functions for what takes longer.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.metadata import InvalidMetadata, Metadata
from trove_classifiers import classifiers

from hatch_build import read_version
from tests.architecture.sources import ROOT
from tests.docs.kit import SKILL
from tests.docs.test_code import README
from tests.docs.typed_pages import follow, split

UV = Path(sys.executable).parent / "uv"
PINS = ROOT / "requirements" / "dev.txt"
DIST = ROOT / "dist"
MOST_BYTES = {"wheel": 3_000_000, "archive": 8_000_000, "file": 1_000_000}
"""The most bytes of the wheel, of the archive of sources, and of a file in one of them."""

_OTHERS = {
    *("PYTHONPATH", "HANDRAIL_STORE", "HANDRAIL_MODEL", "OPENAI_API_KEY", "FORCE_COLOR", "HANDRAIL_TESTS"),
    "PYTHONDONTWRITEBYTECODE",  # each command would compile PydanticAI anew
}
"""Variables that a newcomer does not have."""


def newcomer(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of one who has just installed the package."""
    return {name: value for name, value in os.environ.items() if name not in _OTHERS} | {**variables}


def run(*command: object, cwd: Path, **variables: str) -> str:
    """Run a command as a newcomer does, and return its standard output.

    Raises:
        AssertionError: it fails; with what it printed.
    """
    environment = newcomer({"UV_PYTHON_DOWNLOADS": "never", **variables})
    words = [*map(str, command)]
    done = subprocess.run(
        words, cwd=cwd, env=environment, check=False, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def type_line(line: str, folder: Path, variables: Mapping[str, str]) -> str:
    """Run a command line of a page in a folder, and return what a terminal shows."""
    words, errors = split(line)
    stderr = subprocess.PIPE if errors else subprocess.STDOUT
    done = subprocess.run(
        words, cwd=folder, env=newcomer({**variables, "PYTHONUNBUFFERED": "1"}), check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8",
    )  # fmt: skip
    if errors:
        (folder / errors).write_text(done.stderr, encoding="utf-8")
    return done.stdout + ("Killed\n" if done.returncode == -signal.SIGKILL else "")


def build(source: Path, target: Path, *kinds: str) -> None:
    """Build a folder of sources with the pinned backend: `--wheel`, `--sdist`."""
    options = ("--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", target)
    run(UV, "build", *options, *kinds, source, cwd=source)


def install(folder: Path, python: str, wheel: Path, extras: Sequence[str]) -> Path:
    """Install a wheel into a fresh environment, with the pinned versions; returns its folder of commands."""
    pins = folder / "pins.txt"
    pins.write_text(re.sub(r" \\\n    --hash=\S+| *#.*", "", PINS.read_text(encoding="utf-8")), encoding="utf-8")
    environment = folder / "environment"
    run(UV, "venv", "--quiet", "--clear", "--python", python, environment, cwd=folder)
    wanted = f"handrail[{','.join(extras)}] @ {wheel.as_uri()}"
    run(UV, "pip", "install", "--quiet", "--python", environment, "--constraints", pins, wanted, cwd=folder)
    return environment / "bin"


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive of sources, and return the folder with the project."""
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def entries(wheel: Path) -> dict[str, tuple[int, int]]:
    """The files in a wheel, each with its size and its check sum."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: (entry.file_size, entry.CRC) for entry in archive.infolist()}


def faults_of_wheel(wheel: Path, version: str) -> Iterator[str]:
    """Names what a wheel has that it should not have, or has not."""
    files, info = entries(wheel), f"handrail-{version}.dist-info"
    skill = SKILL.relative_to(ROOT / "src").as_posix()
    missing = {"handrail/py.typed", "handrail/docs/README.md", skill, f"{info}/licenses/LICENSE"} - {*files}
    yield from (f"the wheel lacks {name}" for name in sorted(missing))
    yield from (f"the wheel has {name}" for name in files if not name.startswith(("handrail/", f"{info}/")))
    yield from (f"the wheel has {name}" for name in files if re.search(r"/tests/|/test_\w+\.py$", name))
    yield from _too_large("wheel", wheel, {name: size for name, (size, _) in files.items()})
    with zipfile.ZipFile(wheel) as archive:
        if f'__version__ = "{version}"' not in archive.read("handrail/__init__.py").decode():
            yield f"the code in the wheel does not say that it is version {version}"


def faults_of_archive(archive: Path) -> Iterator[str]:
    """Names what an archive of sources has not."""
    with tarfile.open(archive) as opened:
        sizes = {member.name.partition("/")[2]: member.size for member in opened if member.isfile()}
    wanted = {
        "PKG-INFO",
        "pyproject.toml",
        "hatch_build.py",
        "LICENSE",
        "README.md",
        "CITATION.cff",
        SKILL.relative_to(ROOT).as_posix(),
    }
    yield from (f"the archive lacks {name}" for name in sorted(wanted - {*sizes}))
    yield from _too_large("archive", archive, sizes)


def _too_large(kind: str, archive: Path, sizes: Mapping[str, int]) -> Iterator[str]:
    sized = {archive.name: archive.stat().st_size, **sizes}
    for name, size in sized.items():
        most = MOST_BYTES[kind if name == archive.name else "file"]
        if size > most:
            yield f"{name} has {size:,} bytes, at most {most:,}"


def faults_of_metadata(text: str, version: str) -> Iterator[str]:
    """Names what an index would refuse of the metadata, or not show."""
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as errors:
        yield from (str(error) for error in errors.exceptions if isinstance(error, InvalidMetadata))
        return
    if (metadata.name, str(metadata.version)) != ("handrail", version):
        yield f"the metadata are of {metadata.name} {metadata.version}"
    yield from (f"{name} is not a classifier" for name in metadata.classifiers or () if name not in classifiers)
    if metadata.description_content_type != "text/markdown" or not metadata.description:
        yield "the README is not the description"
    relative = re.findall(r"\]\((?!https://)([^()\s]+)\)", metadata.description or "")
    yield from (f"the description links {target}, which leads nowhere on an index" for target in relative)


def faults_of_release(version: str) -> Iterator[str]:
    """Names what a version lacks that is more than a checkout: a heading in the changelog."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if ".dev" not in version and not re.search(
        rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE
    ):
        yield f"CHANGELOG.md has no heading `## {version} (YYYY-MM-DD)`"


def faults_when_installed(wheel: Path, version: str, folder: Path) -> Iterator[str]:
    """Names what does not work in a fresh environment with all extras."""
    programs = install(folder, sys.executable, wheel, ["all"])
    variables = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    if run(programs / "handrail", "--version", cwd=folder) != f"{version}\n":
        yield "`handrail --version` prints another version"
    if not run(programs / "handrail", "--help", cwd=folder).startswith("Usage: handrail"):
        yield "`handrail --help` does not say how it is used"
    follow(README, folder, partial(type_line, variables=variables))


def faults(version: str, folder: Path) -> Iterator[str]:
    """Builds everything, and names what is wrong with it."""
    shutil.rmtree(DIST, ignore_errors=True)
    build(ROOT, DIST, "--sdist", "--wheel")
    wheel, archive = DIST / f"handrail-{version}-py3-none-any.whl", DIST / f"handrail-{version}.tar.gz"
    if not wheel.is_file() or not archive.is_file():
        yield f"{version} is built as {[path.name for path in DIST.iterdir()]}"
        return
    yield from faults_of_release(version)
    yield from faults_of_wheel(wheel, version)
    yield from faults_of_archive(archive)
    source = unpack(archive, folder)
    with zipfile.ZipFile(wheel) as opened:
        metadata = opened.read(f"handrail-{version}.dist-info/METADATA").decode()
    yield from faults_of_metadata(metadata, version)
    if (source / "PKG-INFO").read_text(encoding="utf-8") != metadata:
        yield "the metadata of the wheel and of the archive differ"
    build(source, folder, "--wheel")
    different = entries(folder / wheel.name).items() ^ entries(wheel).items()
    yield from (f"{name} differs in the wheel of the archive" for name in sorted({name for name, _ in different}))
    yield from faults_when_installed(wheel, version, folder)


def main() -> int:
    """Prints what is wrong, and returns the exit code."""
    version = read_version(ROOT)
    with TemporaryDirectory() as folder:
        found = [*faults(version, Path(folder))]
    print(*found, sep="\n" if found else "", end="\n" if found else "")
    if not found:
        print(f"{version}: dist has what is released")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
