"""The workflows of the repository: what they may do, what they run on, and whose code they use."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.architecture.sources import ROOT
from tests.architecture.test_wheel import VERSIONS

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in FILES}
YAML_READER: Any = YAML(typ="safe")  # has no types
WORKFLOWS: dict[str, dict[str, Any]] = {name: YAML_READER.load(text) for name, text in TEXTS.items()}
ALLOWED = {
    ("docs", "deploy"): {"pages": "write", "id-token": "write"},
    ("release", "publish"): {"id-token": "write"},
}
"""The jobs that may write anything, and what."""


def jobs() -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Each job, by its workflow and its name."""
    for name, workflow in WORKFLOWS.items():
        for job, settings in workflow["jobs"].items():
            yield (name, job), settings


def commands(settings: dict[str, Any]) -> list[str]:
    """The actions and command lines of a job."""
    return [step.get("uses", "").partition("@")[0] or step["run"] for step in settings.get("steps", ())]


def test_a_job_may_read_the_repository_and_nothing_else() -> None:
    """Those that publish may identify themselves; they run no code of the repository."""
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in WORKFLOWS.values())
    found = dict(jobs())
    assert {name: each["permissions"] for name, each in found.items() if "permissions" in each} == ALLOWED
    assert commands(found["docs", "deploy"]) == ["actions/deploy-pages"]
    assert commands(found["release", "publish"]) == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
    assert not [name for name, text in TEXTS.items() if "secrets" in text or "pull_request_target" in text]


def test_what_is_published_was_tested_and_built_by_other_jobs() -> None:
    """A tag starts it; the package is attested, and its environment may ask a person."""
    release = WORKFLOWS["release"]
    assert release["on"] == {"push": {"tags": ["v*"]}}
    test, build, publish = (release["jobs"][name] for name in ("test", "build", "publish"))
    assert (test["uses"], build["needs"], publish["needs"]) == ("./.github/workflows/tests.yml", "test", "build")
    assert "make release-check" in commands(build)
    assert publish["steps"][-1]["with"] == {"attestations": True}
    assert publish["environment"] == "release"


def test_the_tests_run_on_each_python_that_the_package_names() -> None:
    """And on macOS; the nightly run has all of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    tests = WORKFLOWS["tests"]["jobs"]
    assert tests["linux"]["strategy"]["matrix"]["python"] == named == [*VERSIONS]
    assert tests["macos"]["runs-on"] == "macos-latest"
    (nightly,) = WORKFLOWS["nightly"]["jobs"].values()
    versions = [step["with"]["python-version"] for step in nightly["steps"] if "python-version" in step.get("with", {})]
    assert sorted(versions[0].split()) == named
    assert nightly["strategy"]["matrix"]["target"] == ["test-more", "chaos", "proof"]
    assert {"schedule", "workflow_dispatch"} == WORKFLOWS["nightly"]["on"].keys()


@pytest.mark.parametrize("name", WORKFLOWS)
@pytest.mark.short(len(WORKFLOWS))
def test_an_action_is_pinned_and_a_job_ends(name: str) -> None:
    """By the id of a commit, since a tag may move; with the version in a comment, and no password in the checkout."""
    for action in re.findall(r"uses: (.+)$", TEXTS[name], re.MULTILINE):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/tests\.yml", action), action
    for job in WORKFLOWS[name]["jobs"].values():
        assert "uses" in job or job["timeout-minutes"] <= 300
        checkouts = [step for step in job.get("steps", ()) if "actions/checkout" in step.get("uses", "")]
        assert [step for step in checkouts if step["with"]["persist-credentials"] is not False] == []


def test_what_workflows_run_can_be_made() -> None:
    """Targets of the Makefile; and what CI runs elsewhere is `make test` as well."""
    targets = {*re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)}
    made = {target for text in TEXTS.values() for target in re.findall(r"run: make ([a-z-]+)", text)}
    assert {"test", "test-fast", "docs", "release-check"} == made
    assert made | {*WORKFLOWS["nightly"]["jobs"]["long"]["strategy"]["matrix"]["target"]} <= targets
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text("utf-8").rstrip().endswith("make test")
