"""Test a third-party distribution: build, installation, entry point, solving, and its own tests."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests import places

EXAMPLE = places.ROOT / "tests" / "plugin_example"
PAGE = places.DOCS / "how-to" / "write-an-algorithm.md"
DAG = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "tasks": [
        {"id": "a", "time": 1, "size": 4},
        {"id": "b", "time": 2, "size": 3, "reads": ["a"]},
        {"id": "c", "time": 3, "size": 2, "reads": ["a"]},
        {"id": "d", "time": 4, "size": 1, "reads": ["b", "c"]},
    ],
    "outputs": ["d"],
}


def python(*arguments, path=(), at, check=True):
    """Run Python in a folder, with further folders on its path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=at, check=False
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def install(source, target):
    """Build a distribution and install it into a folder, without a network."""
    if find_spec("pip"):
        options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", target)
        python("-m", "pip", "install", *options, source, at=source)
    else:  # environments that uv makes have no pip; a pure wheel is installed by unpacking it
        python("-m", "hatchling", "build", "-t", "wheel", "-d", source / "dist", at=source)
        (wheel,) = (source / "dist").glob("*.whl")
        shutil.unpack_archive(wheel, target, "zip")


def run_suite(module, target, folder, *more):
    """Run a conformance test where the distribution that it is for is installed in `target`."""
    shutil.copy(module, folder)
    options = ("-q", "-p", "no:cacheprovider", "-W", "error", f"--rootdir={folder}")
    done = python("-m", "pytest", *options, *more, module.name, path=[target], at=folder, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the folder into which a copy of the example is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    source, target = folder / "source", folder / "site"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    install(source, target)
    return target


def entry_point(folder, name, value):
    """Write the metadata of an installed distribution with one entry point."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[remat.algorithms]\n{name} = {value}\n")


def test_is_listed_and_solves(installed, tmp_path):
    program = f"""
import json, sys, remat
(mine,) = [algorithm for algorithm in remat.algorithms(kind="dag") if algorithm.name == "random-order"]
assert "remat_random_order.solver" not in sys.modules
result = remat.solve({DAG!r}, algorithm="random-order", budget=9, options={{"tries": 5}}, seed=3)
json.dump(result.to_dict(), sys.stdout)
"""
    done = python("-c", program, path=[installed], at=tmp_path)
    document = json.loads(done.stdout)
    assert document["algorithm"] == "random-order"
    assert document["options"] == {"tries": 5}
    assert document["makespan"] == 10
    assert document["peak_memory"] == {"memory": 9}
    assert not done.stderr


def test_is_solved_with_on_the_command_line(installed, tmp_path):
    (tmp_path / "dag.json").write_text(json.dumps(DAG))
    arguments = ("solve", "dag.json", "--algorithm", "random-order", "--option", "tries=7", "-o", "schedule.json")
    python("-m", "remat", *arguments, path=[installed], at=tmp_path)
    document = json.loads((tmp_path / "schedule.json").read_text())
    assert (document["algorithm"], document["options"]) == ("random-order", {"tries": 7})
    python("-m", "remat", "verify", "dag.json", "schedule.json", path=[installed], at=tmp_path)


def test_passes_the_suite(installed, tmp_path):
    """The conformance test of the example, three lines of it."""
    run_suite(EXAMPLE / "test_conformance.py", installed, tmp_path)


@pytest.mark.slow
def test_page_on_writing_algorithms(tmp_path):
    """The files that docs/how-to/write-an-algorithm.md shows: installed, solved with, and through the suite."""
    source, target, here = tmp_path / "source", tmp_path / "site", tmp_path / "here"
    files = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert [name for name, _ in files] == ["short_memory.py", "last_again.py", "pyproject.toml", "test_short_memory.py"]
    for folder in (source, here):
        folder.mkdir()
    for name, text in files:
        (source / name).write_text(text)
    install(source, target)
    (here / "dag.json").write_text(json.dumps(DAG))
    arguments = ("solve", "dag.json", "--algorithm", "short-memory", "--option", "distance=1", "-o", "schedule.json")
    python("-m", "remat", *arguments, path=[target], at=here)
    document = json.loads((here / "schedule.json").read_text())
    assert [step["run"] for step in document["steps"]] == ["a", "b", "a", "c", "b", "c", "d"]
    # The example above runs all of the suite.
    run_suite(source / "test_short_memory.py", target, here, "-k", "metadata or options or (valid and dag)")


@pytest.mark.parametrize(
    ("module", "value", "reason"),
    [
        ("raise ImportError('a library is missing')", "broken:catalogue", "a library is missing"),
        ("catalogue = 17", "broken:catalogue", "not iterable"),
        ("def catalogue(): raise RuntimeError('cannot list')", "broken:catalogue", "cannot list"),
        ("", "broken:nothing", "nothing"),
        ("", "not_there_at_all:catalogue", "not_there_at_all"),
    ],
)
def test_broken_plugin_takes_nobody_down(tmp_path, module, value, reason):
    (tmp_path / "broken.py").write_text(module)
    entry_point(tmp_path, "broken", value)
    program = f"import remat; print(remat.solve({DAG!r}, algorithm='keep-all').makespan)"
    done = python("-c", program, path=[tmp_path], at=tmp_path)
    assert done.stdout == "10\n"
    assert "plug-in broken" in done.stderr
    assert reason in done.stderr


def test_plugin_cannot_take_a_builtin_name(tmp_path):
    (tmp_path / "thief.py").write_text(
        "from remat.plugin.registry import Algorithm\n"
        "catalogue = [\n"
        "    Algorithm(name='keep-all', solver='thief:solve', kinds=('dag',), summary='no', guarantee='exact')\n"
        "]\n"
    )
    entry_point(tmp_path, "aaa", "thief:catalogue")
    program = "import remat; print({a.name: a.solver for a in remat.algorithms()}['keep-all'])"
    assert "remat_algorithms" in python("-c", program, path=[tmp_path], at=tmp_path).stdout


def test_the_docstring_of_chains_lists_their_fields_and_the_formats_the_names_of_their_tasks():
    """The page sends authors to both; names are those that the lowering gives, with and without variants."""
    import inspect
    from dataclasses import fields

    import remat
    from remat.graph.chain import Chain
    from remat.solving.problem_setup import make_problem

    assert "`Chain`" in PAGE.read_text()
    attributes = (inspect.getdoc(Chain) or "").partition("Attributes\n")[2]
    listed = {
        name for row in re.findall(r"^(\w[\w, ]*?)(?: :|$)", attributes, flags=re.MULTILINE) for name in row.split(", ")
    }
    assert {field.name for field in fields(Chain)} <= listed
    stage = {"forward_time": 1, "backward_time": 1, "output_size": 1, "saved_size": 1}
    variants = [{}, {"saved_size": 3}]
    chain = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "stages": [stage, stage, stage]}
    plain = make_problem(remat.load(chain)).graph
    assert list(plain.tasks) == [*("F1", "F2", "F3", "Fe1", "Fe2", "Fe3"), "loss", *("B1", "B2", "B3")]
    assert list(plain.values) == [*("x0", "x1", "x2", "x3"), *("s1", "s2", "s3"), *("y0", "y1", "y2", "y3")]
    several = make_problem(remat.load(chain | {"stages": [stage, stage, stage | {"variants": variants}]})).graph
    assert {"Fe3.1", "Fe3.2", "B3.1", "B3.2", "F3"} <= set(several.tasks)
    assert not {"Fe3", "B3"} & set(several.tasks)
    assert {"s3.1", "s3.2"} <= set(several.values)
    formats = (places.DOCS / "reference" / "formats.md").read_text()
    assert all(f"`{name}" in formats for name in ("Fe{i}.{v}", "B{i}.{v}", "s{i}.{v}"))


def test_what_the_page_recommends_is_importable_from_the_contract():
    """Names of the contract that the page mentions, and the modules that its code imports from."""
    import remat.plugin

    text = PAGE.read_text()
    mentioned = set(
        re.findall(r"\b(Algorithm|Context|Options|Problem|Proposal|TaskGraph|Chain|Variants|Trial|OptionError)\b", text)
    )
    assert {"Context", "Options", "Problem", "TaskGraph", "Chain"} <= mentioned
    for name in mentioned | set(re.findall(r"`remat\.plugin\.(\w+)`", text)):
        assert getattr(remat.plugin, name) is not None
    for module, names in re.findall(r"^from (remat[\w.]*) import (.+)$", text, re.MULTILINE):
        assert module in ("remat.plugin", "remat.testing", "remat.placement")  # all that the page permits
        assert f"`{module}`" in text.partition("## A complete example")[0]
        assert all(hasattr(__import__(module, fromlist=["x"]), name.strip()) for name in names.split(","))
