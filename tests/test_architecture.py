"""Allowed imports (the floors of `tests.house`), costs of imports, and limits on the length of files and functions."""

import ast
import doctest
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from importlib.util import find_spec

import pytest

import remat
from remat.plugin.deprecated import MOVED
from tests import house, places
from tests.house import CORE, MODULES, SOURCES, ZOO, imports, module_name

HEAVY = ("numpy", "pydantic", "networkx", "ortools", "pulp", "matplotlib", "scipy", "numba", "hypothesis", "pytest")


def importing(folder, *modules):
    """The files of a folder that import one of the modules, or a part of them."""
    return {
        module_name(path): sorted(hits)
        for path in sorted(folder.rglob("*.py"))
        if (hits := {name for name in imports(path) for module in modules if f"{name}.".startswith(f"{module}.")})
    }


@pytest.mark.parametrize(
    ("floors", "root"), [(house.CORE_FLOORS, "remat"), (house.ZOO_FLOORS, "remat_algorithms")], ids=["core", "zoo"]
)
def test_imports_run_downwards(floors, root):
    assert list(house.upward(floors, root)) == []
    rooms = {room for listed, _ in floors for room in listed.split()}
    there = {path.stem for path in places.ROOT.glob(f"*/{root}/*") if path.is_dir() or path.suffix == ".py"}
    assert there - rooms - {"__pycache__"} == {"__init__", *({"__main__"} if root == "remat" else ())}
    assert rooms <= there


def test_no_circles_of_files():
    assert [part for part in house.circles() if not house.EXEMPT.keys() >= set(part)] == []


def test_core_never_imports_the_zoo():
    assert importing(CORE, "remat_algorithms") == {}


def test_frameworks_stay_in_their_bridges():
    """The core works without frameworks and reports missing ones; only a bridge's interface imports the bridge."""
    frameworks = ("torch", "transformers", "jax", "onnx", "tensorflow")
    bridges = ("remat.bridges.torch", "remat.bridges.jax")
    for folder in (CORE, ZOO):
        found = importing(folder, *frameworks)
        inside = {module: hits for module, hits in found.items() if not module.startswith(bridges)}
        inside.pop("remat.bridges.onnx.reading", None)  # everything else there works on plain data
        assert inside == {}
        outside = {module for module in importing(folder, *bridges) if not module.startswith(bridges)}
        assert outside <= {"remat.torch", "remat.jax"}


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_the_face_of_a_framework_is_imported_without_it(name):
    loaded = loaded_after(f"import remat.{name}; dir(remat.{name})")
    assert not {each for each in loaded if each.startswith((name, f"remat.bridges.{name}"))}


def test_verifier_and_placement_are_twins():
    above = ("remat.solving", "remat.plugin")
    assert importing(CORE / "verifier", "remat.placement", *above) == {}
    assert importing(CORE / "placement", "remat.verifier", *above) == {}


def test_zoo_knows_the_contract_and_placement_only():
    """Algorithms only propose, like those of plug-ins; verification and conclusions belong to the core."""
    found = importing(ZOO, "remat")
    others = {
        module: hits
        for module, names in found.items()
        if (hits := [name for name in names if not name.startswith(("remat.plugin.", "remat.placement."))])
    }
    assert others == {}


def test_files_bear_the_names_of_their_algorithms():
    """A module that serves one algorithm is named as the registry has it."""
    served = defaultdict(list)
    for algorithm in remat.algorithms():
        served[algorithm.solver.partition(":")[0]].append(algorithm.name)
    alone = {module: names[0] for module, names in served.items() if len(names) == 1 and module in MODULES}
    assert {module: name for module, name in alone.items() if module.rpartition(".")[2] != name.replace("-", "_")} == {}


def test_the_table_of_floors_is_printed():
    assert house.table() in (places.ROOT / "CONTRIBUTING.md").read_text()


def test_testing_is_imported_by_nobody():
    for path in CORE.rglob("*.py"):
        if not path.is_relative_to(CORE / "testing"):
            assert not {name for name in imports(path) if name.startswith("remat.testing")}, path.name


def test_public_functions_share_no_name_with_a_module():
    """Importing the module would replace the function."""
    assert {"solve", "verify", "show", "algorithms"} <= set(remat.__all__)
    for name in {*remat.__all__, "solve", "verify", "compare", "sweep", "show", "algorithms"}:
        if f"remat.{name}" not in MOVED and find_spec(f"remat.{name}") is not None:
            assert callable(import_module(f"remat.{name}")), f"remat.{name} is a module, too"


def test_public_names_are_there():
    for name in remat.__all__:
        assert getattr(remat, name) is not None
    assert dir(remat) == sorted([*remat.__all__, "__version__"])
    with pytest.raises(AttributeError, match="module 'remat' has no attribute 'resolve'"):
        remat.resolve  # noqa: B018


def test_public_functions_and_methods_are_documented():
    """numpydoc texts have a summary, parameters by name or by a function that shares them, and returns."""
    missing = []
    for name in remat.__all__:
        found = inspect.unwrap(getattr(remat, name))
        own = {name: found}
        if inspect.isclass(found):
            own |= {f"{name}.{part}": value for part, value in vars(found).items() if not part.startswith("_")}
        for path, value in own.items():
            value = value.fget if isinstance(value, property) else value
            if not (inspect.isfunction(value) or inspect.isclass(value)):
                continue
            text = inspect.getdoc(value) or ""
            if not text:
                missing.append(f"{path}: no docstring")
            elif inspect.isfunction(value) and path == name:
                elsewhere = "are those of `remat." in text
                listed = [] if elsewhere else [one for one in inspect.signature(value).parameters if one not in text]
                missing += [f"{path}: no {one}" for one in listed]
                missing += [] if re.search(r"^(Returns|Yields)\n-|^Return ", text, re.M) else [f"{path}: no Returns"]
    assert missing == []


@pytest.mark.parametrize("name", [name for name in remat.__all__ if inspect.unwrap(getattr(remat, name)).__doc__])
def test_examples_of_docstrings_hold(name):
    found = inspect.unwrap(getattr(remat, name))
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for each in doctest.DocTestFinder(recurse=inspect.isclass(found)).find(found, name, globs={}):
        runner.run(each)
    assert runner.summarize(verbose=False).failed == 0


def loaded_after(statement):
    """Modules of `HEAVY`, and of ours, that a fresh interpreter has after a statement."""
    program = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_remat_is_cheap():
    assert not loaded_after("import remat").intersection(HEAVY)


def test_listing_algorithms_is_cheap():
    loaded = loaded_after("import remat; assert remat.algorithms()")
    assert not loaded.intersection(HEAVY)
    ours = {module_name(path) for path in SOURCES if not path.stem.startswith(("__init__", "catalogue"))}
    assert not {name for name in loaded & ours if name.startswith("remat_algorithms.")}


def test_importing_the_suite_needs_neither_pytest_nor_hypothesis():
    loaded = loaded_after("import remat.testing")
    assert not loaded & {"pytest", "hypothesis"}


def test_verifying_a_chain_loads_nothing_of_pipelines():
    chain = "remat.chain(forward_time=[1, 1], backward_time=1, output_size=1, saved_size=1)"
    document = {"schema": "remat.schedule/2", "steps": []}
    loaded = loaded_after(f"import remat; remat.verify({chain}, {document!r})")
    assert "remat.solving.verifying" in loaded
    assert not loaded & {"remat.placement.orders", "remat.solving.orders", "remat.verifier.deadlock"}


def test_zoo_loads_only_what_is_used():
    document = {"schema": "remat.instance/1", "kind": "tree", "parent": [-1], "output_size": [1]}
    loaded = loaded_after(f"import remat; remat.solve({document!r}, algorithm='keep-all')")
    solvers = {algorithm.solver.partition(":")[0] for algorithm in remat.algorithms()}
    assert loaded & solvers == {"remat_algorithms.dag.keep_all"}
    assert not loaded & {"networkx", "ortools", "pulp", "matplotlib", "scipy", "numba"}


def functions(path):
    for node in ast.walk(house.parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            plain = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            yield node.name, node.end_lineno - node.lineno + 1, len(plain) - (plain[:1] in (["self"], ["cls"]))


def test_files_and_functions_are_short():
    found = []
    for path in SOURCES:
        own, lines = module_name(path), len(path.read_text().splitlines())
        if lines > house.LONGEST_FILE:
            found.append(f"{own} has {lines} lines; split it by concept")
        for name, length, wide in functions(path) if own not in house.EXEMPT else ():
            if length > house.LONGEST_FUNCTION:
                found.append(f"{own}.{name} has {length} lines")
            if wide > house.MOST_PARAMETERS:
                found.append(f"{own}.{name} has {wide} positional parameters; take a record")
    assert not found


def test_messages_outside_the_command_line_name_no_flag():
    """The library speaks of arguments; `remat.cli` makes flags of them."""
    for path in SOURCES:
        if path.is_relative_to(CORE / "cli"):
            continue
        tree = house.parsed(path)
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found = re.search(r"(?<![\w(-])--[a-z]", node.value)
                assert found is None, f"{module_name(path)}:{node.lineno} names a flag: {node.value[:80]!r}"


def test_names_in_texts_lead_somewhere():
    """Dotted names in docstrings and pages exist."""
    pages = [*SOURCES, *places.DOCS.rglob("*.md"), places.ROOT / "README.md", places.ROOT / "CONTRIBUTING.md"]
    named = {name for page in pages for name in re.findall(r"`(remat(?:_algorithms)?(?:\.\w+)+)[`(]", page.read_text())}
    assert len(named) > 50
    assert [name for name in sorted(named) if not leads_somewhere(name)] == []


def leads_somewhere(name):
    there, *parts = name.split(".")
    found = import_module(there)
    for part in parts:
        if part == parts[-1] and part in getattr(found, "__all__", ()):
            return True  # of a face of another framework, which need not be installed
        there = f"{there}.{part}"
        if not hasattr(found, part) and (not hasattr(found, "__path__") or find_spec(there) is None):
            return False
        found = getattr(found, part) if hasattr(found, part) else import_module(there)
    return True
