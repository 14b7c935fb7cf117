"""Overrides in a folder of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from handrail.errors import InvalidArgumentError, OverridesError
from handrail.prompt.overrides import OverrideFiles, OverridesStore, PromptOverrides, dump_overrides
from handrail.prompt.overrides.store import LARGEST_FILE
from tests.prompt.overrides.desk import GUIDE, LOOKUP, HeldOverrides, overrides
from tests.wording import Wording

FOUND = overrides((GUIDE, "Be kind."), (LOOKUP, "Finds."))


def refused(store: OverrideFiles, tag: str = "stable", ns: str = "shop/front", key: str = "desk") -> OverridesError:
    """The error of a reading."""
    with pytest.raises(OverridesError) as caught:
        store.read(ns, key, tag)
    return caught.value


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """The file stands below namespace and key, and nothing else does."""
    store = OverrideFiles(tmp_path / "new" / "overrides")
    assert store.read("shop/front", "desk", "stable") is None
    store.write(FOUND)
    store.write(FOUND)
    assert store.read("shop/front", "desk", "stable") == FOUND
    assert store.read("shop/front", "desk", "next") is None
    files = [path for path in store.folder.rglob("*") if path.is_file()]
    assert files == [store.path("shop/front", "desk", "stable")]
    assert files[0].relative_to(store.folder).as_posix() == "shop/front/desk/stable.json"
    assert repr(store) == f"OverrideFiles({str(store.folder)!r})"


def test_both_stores_implement_the_protocol(tmp_path: Path) -> None:
    """By their methods."""
    assert isinstance(OverrideFiles(tmp_path), OverridesStore)
    assert isinstance(HeldOverrides(), OverridesStore)


@pytest.mark.parametrize(
    "ns, key, tag",
    [
        ("a/../b", "k", "t"),
        ("..", "k", "t"),
        ("a", "/k", "t"),
        ("a", "k", "../t"),
        ("a", "k", "t/u"),
        ("a", "k", ""),
        ("a", "k\0", "t"),
    ],
)
def test_no_name_leaves_the_folder(tmp_path: Path, ns: str, key: str, tag: str) -> None:
    """Neither for reading nor for writing."""
    store = OverrideFiles(tmp_path / "overrides")
    refused(store, tag, ns, key)
    with pytest.raises(OverridesError):
        store.write(PromptOverrides(ns=ns, key=key, tag=tag))
    assert list(tmp_path.iterdir()) == []


def test_no_link_below_the_folder_is_followed(tmp_path: Path) -> None:
    """Neither a folder nor a file; what a link leads to is unchanged."""
    outside, store = tmp_path / "outside", OverrideFiles(tmp_path / "overrides")
    OverrideFiles(outside).write(FOUND)
    file = OverrideFiles(outside).path("shop/front", "desk", "stable")
    before = file.read_bytes()
    store.folder.mkdir()
    (store.folder / "shop").symlink_to(outside / "shop")
    refused(store)
    with pytest.raises(OverridesError):
        store.write(overrides((GUIDE, "Other.")))
    (store.folder / "shop").unlink()
    place = store.path("shop/front", "desk", "stable")
    place.parent.mkdir(parents=True)
    place.symlink_to(file)
    refused(store)
    store.write(overrides((GUIDE, "Other.")))
    assert not place.is_symlink()
    assert file.read_bytes() == before


def test_a_write_that_fails_leaves_the_former_file(tmp_path: Path) -> None:
    """And no other file."""
    store = OverrideFiles(tmp_path)
    store.write(FOUND)
    with pytest.raises(OverridesError):
        store.write(overrides((GUIDE, "x" * LARGEST_FILE)))
    place = store.path("shop/front", "desk", "next")
    place.mkdir()
    with pytest.raises(OverridesError):
        store.write(overrides((GUIDE, "Other."), tag="next"))
    assert store.read("shop/front", "desk", "stable") == FOUND
    assert sorted(path.name for path in place.parent.iterdir()) == ["next.json", "stable.json"]


def test_a_file_that_cannot_be_one_of_overrides_is_refused(tmp_path: Path, wording: Wording) -> None:
    """Another prompt's, one that is too large, not UTF-8, a pipe, a folder."""
    store = OverrideFiles(tmp_path)
    store.write(FOUND)
    place = store.path("shop/front", "desk", "stable")
    said: list[str] = []
    place.write_text(dump_overrides(overrides((GUIDE, "A"), tag="next")))
    said.append(str(refused(store)))
    place.write_bytes(b" " * (LARGEST_FILE + 1))
    said.append(str(refused(store)))
    place.write_bytes(b"{}\xff")
    said.append(str(refused(store)))
    place.unlink()
    os.mkfifo(place)
    said.append(str(refused(store)))
    place.unlink()
    place.mkdir()
    said.append(str(refused(store)))
    assert "\n".join(said).replace(str(tmp_path), "/srv") == wording


def test_a_folder_is_a_path() -> None:
    """Anything else is refused when the store is made."""
    with pytest.raises(InvalidArgumentError):
        OverrideFiles(1)  # type: ignore[arg-type] # the mistake
