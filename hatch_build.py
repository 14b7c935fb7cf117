"""What the build adds: the version, the addresses, the pages, and the README as an index page shows it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`]*`)+)\]\((?!https?://|mailto:)([^()\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_VERSION = re.compile(r'(?<=^__version__ = ")[^"]+', re.MULTILINE)
_PACKAGE = Path("src", "handrail", "__init__.py")


class Wheel(BuildHookInterface[Any]):
    """Puts `docs/` into the wheel, where `handrail docs` finds it, and the version; an editable install has neither."""

    _folder: TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the pages and the version to a wheel that is shipped."""
        if version != "standard":
            return
        root, added = Path(self.root), build_data["force_include"]
        for page in (root / "docs").rglob("*.md"):
            added[str(page)] = f"handrail/docs/{page.relative_to(root / 'docs').as_posix()}"
        # Beside the folder, as in the repository.
        for name in ("README.md", "CHANGELOG.md", "SECURITY.md"):
            added[str(root / name)] = f"handrail/{name}"
        self._folder = TemporaryDirectory()
        module = Path(self._folder.name, _PACKAGE.name)
        text = (root / _PACKAGE).read_text(encoding="utf-8")
        module.write_text(_VERSION.sub(self.metadata.version, text), encoding="utf-8")
        added[str(module)] = f"handrail/{_PACKAGE.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was made for the wheel."""
        if self._folder is not None:
            self._folder.cleanup()


class Metadata(MetadataHookInterface):
    """Makes the version, the addresses and the description; those of an archive of sources stand in its `PKG-INFO`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the fields `version`, `urls` and `readme`."""
        root = Path(self.root)
        metadata.setdefault("version", read_version(root))
        addresses = metadata.setdefault("urls", repository_urls(os.environ))
        repository = addresses.get("Repository", "")
        commit = "main" if ".dev" in metadata["version"] else f"v{metadata['version']}"
        address = f"{repository}/blob/{commit}" if repository else ""
        text = (root / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_links(text, address)}


def read_version(root: Path) -> str:
    """The version of a checkout: that of the tag of its commit, such as `v0.1.0a1`, or the one that the package has.

    Without git, in a checkout that was changed, and at a commit without a tag, it is the one of the package, which says
    that it is not a release.
    """
    command = ["git", "describe", "--tags", "--exact-match", "--dirty", "--match", "v[0-9]*"]
    tag = ""
    if (root / ".git").exists():  # else git would describe the repository that the folder is in
        try:
            done = subprocess.run(command, cwd=root, capture_output=True, check=False, encoding="utf-8")  # noqa: S603
            tag = done.stdout.strip()
        except OSError:
            pass  # there is no git
    if tag and not tag.endswith("-dirty"):
        return tag.removeprefix("v")
    (own,) = _VERSION.findall((root / _PACKAGE).read_text(encoding="utf-8"))
    return str(own)


def repository_urls(environment: Mapping[str, str]) -> dict[str, str]:
    """The addresses of the repository whose workflow builds; none elsewhere.

    Args:
        environment: the variables that a workflow of GitHub sets.
    """
    server, name = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    if not server or not name:
        return {}
    address, (owner, project) = f"{server}/{name}", name.split("/")
    return {
        "Documentation": f"https://{owner.lower()}.github.io/{project}/",
        "Repository": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
    }


def with_links(text: str, repository: str) -> str:
    """The README for a page that is not in the repository.

    Args:
        text: the README.
        repository: the address that links are relative to; without one, the text of a link stays and its target goes,
            and an image goes.
    """

    def absolute(match: re.Match[str]) -> str:
        is_image, text, target = match.groups()
        if not repository:
            return "" if is_image else text
        page = f"/README.md{target}" if target.startswith("#") else f"/{target}"
        return f"{is_image}[{text}]({repository.replace('/blob/', '/raw/') if is_image else repository}{page})"

    return "".join(part if part.startswith("```") else _LINK.sub(absolute, part) for part in _FENCE.split(text))
