"""Entry points from folders: those that `importlib.metadata` finds."""

import sys
import zipfile
from importlib import metadata
from importlib.machinery import PathFinder

import pytest

from remat.plugin import entry_points


@pytest.fixture(autouse=True)
def _nobody_else_finds(monkeypatch):
    """Undo what importlib_metadata, which other tests import, does to the standard library's finder."""
    known = [each for each in sys.meta_path if each is PathFinder or not hasattr(each, "find_distributions")]
    monkeypatch.setattr(sys, "meta_path", known)
    own = staticmethod(metadata.MetadataPathFinder.find_distributions)
    monkeypatch.setattr(PathFinder, "find_distributions", own, raising=False)


def package(folder, name, entries, kind="dist-info"):
    info = folder / f"{name}-1.0.{kind}"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)


def both(group):
    """Return the entry points found in folders (None: unknown) and those of the standard library."""
    quick = entry_points._in_folders(group)
    slow = [(point.name, point.value) for point in metadata.entry_points(group=group)]
    return None if quick is None else sorted((point.name, point.value) for point in quick), sorted(slow)


@pytest.mark.parametrize("group", ["console_scripts", "remat.algorithms", "pytest11", "nobody.has.this"])
def test_of_what_is_installed(group):
    quick, slow = both(group)
    assert quick is None or quick == slow
    assert sorted((point.name, point.value) for point in entry_points.entry_points(group)) == slow


def test_the_zoo_is_found_in_folders():
    assert ("builtin", "remat_algorithms:catalogue") in both("remat.algorithms")[0]


def test_as_they_are_written(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    package(first, "one_package", "# a comment\n[g]\na = json:dumps\n  b=os:path.join \n\n[other]\na = json:loads\n")
    package(first, "other", "[g.more]\nc = json:loads\n", kind="egg-info")
    package(second, "One-Package", "[g]\na = json:loads\n")  # hidden by the first one
    package(second, "third", "[ g ]\nd = json:loads\n")
    for folder in (second, first):
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "nowhere"), str(first)])
    quick, slow = both("g")
    assert quick == slow
    assert ("b", "os:path.join") in quick
    (found,) = [point for point in entry_points.entry_points("g") if point.name == "b"]
    assert found.load() is __import__("os").path.join
    assert found.value == "os:path.join"


@pytest.mark.parametrize("value", ["json", "json:dumps [extra]", "not a module"])
def test_unusual_values_are_left_to_the_standard_library(tmp_path, monkeypatch, value):
    package(tmp_path, "odd", f"[g]\na = {value}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert entry_points._in_folders("g") is None
    assert [point.name for point in entry_points.entry_points("g")] == ["a"]


def test_packed_packages_are_left_to_the_standard_library(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        packed.writestr("packed-1.0.dist-info/METADATA", "Name: packed\nVersion: 1.0\n")
        packed.writestr("packed-1.0.dist-info/entry_points.txt", "[g]\na = json:dumps\n")
    monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))
    assert entry_points._in_folders("g") is None
    assert [point.value for point in entry_points.entry_points("g")] == ["json:dumps"]


def test_finders_of_others_are_asked(monkeypatch):
    class Finder(metadata.DistributionFinder):
        def find_distributions(self, context=None):
            return []

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert entry_points._in_folders("remat.algorithms") is None
    assert entry_points.entry_points("remat.algorithms")
