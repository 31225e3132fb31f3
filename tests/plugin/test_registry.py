"""The registry: a lazy catalogue, names with suggestions, entry points of others."""

import subprocess
import sys

import pytest

import remat
from remat import OptionError
from remat.plugin import registry
from remat.plugin.registry import KINDS, Algorithm, fault_of, find, refresh


def entry(name="mine", **more):
    usual = {"solver": "json:dumps", "kinds": ("dag",), "summary": "a test", "guarantee": "heuristic"}
    return Algorithm(name=name, **usual | more)


class Point:
    """An entry point, without a distribution."""

    def __init__(self, name, load):
        self.name, self.value, self.load = name, f"{name}:catalogue", load


@pytest.fixture
def points(monkeypatch):
    """Replace the installed entry points; the list may still be filled."""
    listed = []
    monkeypatch.setattr(registry, "entry_points", lambda group: listed if group == "remat.algorithms" else [])
    refresh()
    yield listed
    refresh()


def names(listed):
    return [algorithm.name for algorithm in listed]


def test_builtin_zoo_is_listed_by_name():
    listed = names(remat.algorithms())
    assert "keep-all" in listed
    assert listed == sorted(listed)


@pytest.mark.parametrize("kind", KINDS)
def test_listed_for_a_kind(kind):
    listed = remat.algorithms(kind=kind)
    # What is for any task graph runs it on the first processor: that a pipeline's tasks cannot all do.
    assert ("keep-all" in names(listed)) == (kind != "pipeline")
    assert all(kind in algorithm.kinds or "taskgraph" in algorithm.kinds for algorithm in listed)


def test_an_unknown_kind_is_refused():
    with pytest.raises(OptionError, match="unknown kind 'graph'; it is one of chain, adjoint, dag, tree"):
        remat.algorithms(kind="graph")


def test_algorithms_can_be_limited_to_available_ones(points):
    points.append(Point("zoo", lambda: [entry("here", requires=("json",)), entry("gone", requires=("no_module_x",))]))
    assert names(remat.algorithms()) == ["gone", "here"]
    assert names(remat.algorithms(available=True)) == ["here"]
    gone = remat.algorithms()[0]
    assert gone.missing() == ("no_module_x",)
    assert not gone.is_available()
    with pytest.raises(OptionError, match="'gone' needs no_module_x, which is not installed"):
        find("gone", "dag")


def test_catalogue_may_be_a_list_or_a_function(points):
    points.append(Point("list", lambda: (entry("one"),)))
    points.append(Point("function", lambda: lambda: [entry("two")]))
    assert names(remat.algorithms()) == ["one", "two"]


def test_is_found_anew_after_refresh(points):
    assert remat.algorithms() == ()
    points.append(Point("late", lambda: [entry()]))
    assert remat.algorithms() == ()
    refresh()
    assert names(remat.algorithms()) == ["mine"]


def test_builtin_names_come_first(points):
    theirs, ours = entry("same", summary="theirs"), entry("same", summary="ours")
    points.append(Point("aaa", lambda: [theirs]))
    points.append(Point("builtin", lambda: [ours]))
    assert remat.algorithms() == (ours,)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"kinds": ("chains",)}, "algorithm 'wrong' is for the kind 'chains', which is unknown; did you mean 'chain'?"),
        ({"kinds": ("tensor",)}, "the kind 'tensor', which is unknown; the kinds are chain, adjoint, dag, tree"),
        ({"kinds": "chain"}, "has kinds='chain'; write a tuple, such as kinds=('chain',)"),
        ({"kinds": ()}, "has kinds=(); write a tuple"),
        ({"guarantee": "best"}, "has guarantee='best'; write one of exact, bounded, heuristic, strategy"),
        (None, "is not a remat.plugin.Algorithm; list the algorithms as such"),
    ],
)
def test_wrong_metadata_is_a_warning_with_the_remedy(points, given, fault):
    wrong = print if given is None else entry("wrong", **given)
    points.append(Point("wrong", lambda: [wrong, entry()]))
    with pytest.warns(UserWarning, match="plug-in wrong") as warned:
        assert names(remat.algorithms()) == ["mine"]
    assert fault in str(warned[0].message)


def test_the_metadata_of_the_zoo_are_right():
    assert [fault for fault in map(fault_of, remat.algorithms()) if fault] == []


def test_broken_plugin_is_a_warning(points):
    def broken():
        raise ImportError("no such library")

    points.append(Point("broken", broken))
    points.append(Point("sound", lambda: [entry()]))
    with pytest.warns(UserWarning, match=r"plug-in broken \(broken:catalogue\) cannot be loaded: no such library"):
        assert names(remat.algorithms()) == ["mine"]


def test_what_is_listed_must_be_algorithms(points):
    points.append(Point("odd", lambda: ["mine"]))
    with pytest.warns(UserWarning, match="plug-in odd"):
        assert remat.algorithms() == ()


def test_find_suggests_similar_names():
    assert find("keep-all", "tree").name == "keep-all"
    with pytest.raises(OptionError, match="unknown algorithm 'kep-all'; did you mean 'keep-all'"):
        find("kep-all", "dag")
    with pytest.raises(OptionError, match=r"unknown algorithm 'xyzzy'; known for dag: ap-greedy, .* and \d+ more"):
        find("xyzzy", "dag")


def test_find_for_another_kind(points):
    points.append(Point("zoo", lambda: [entry(), entry("other", kinds=("taskgraph",))]))
    with pytest.raises(OptionError, match="'mine' solves dag, not tree; use one of other"):
        find("mine", "tree")


def test_references_are_loaded_when_asked_for():
    import json

    assert entry().load() is json.dumps
    assert entry().load_options() is None
    assert entry(options="json:JSONDecoder").load_options() is json.JSONDecoder


def test_entries_are_immutable():
    with pytest.raises(AttributeError):
        entry().name = "other"


def test_listing_imports_no_solver():
    program = """
import sys, remat
listed = remat.algorithms()
solvers = {a.solver.partition(":")[0] for a in listed} | {a.options.partition(":")[0] for a in listed}
loaded = sorted((solvers - {""}) & set(sys.modules))
heavy = sorted({"numpy", "pydantic", "networkx", "ortools", "pulp", "numba"} & set(sys.modules))
print(len(listed), loaded, heavy)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    count, _, rest = done.stdout.strip().partition(" ")
    assert int(count) > 0
    assert rest == "[] []"
