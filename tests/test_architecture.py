"""Who may import whom, what importing costs, and how long a file may be."""

import ast
import subprocess
import sys
from importlib.util import find_spec

import pytest

import remat
from tests import places

ROOT = places.ROOT
CORE, ZOO = ROOT / "solver" / "remat", ROOT / "algorithms" / "remat_algorithms"
SOURCES = sorted([*CORE.rglob("*.py"), *ZOO.rglob("*.py")])
HEAVY = ("numpy", "pydantic", "networkx", "ortools", "pulp", "matplotlib", "scipy", "numba", "hypothesis", "pytest")
LONGEST = 400


def module_name(path):
    parts = path.relative_to(CORE.parent if path.is_relative_to(CORE) else ZOO.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path):
    """All modules that a file imports, anywhere in it, and under TYPE_CHECKING, too."""
    found = set()
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.update(f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            named = node.args[0]
            found.update([named.value] if isinstance(named, ast.Constant) else [])
    return found


def importing(folder, *modules):
    """The files of a folder that import one of the modules, or a part of them."""
    return {
        module_name(path): sorted(hits)
        for path in sorted(folder.rglob("*.py"))
        if (hits := {name for name in imports(path) for module in modules if f"{name}.".startswith(f"{module}.")})
    }


def test_core_never_imports_the_zoo():
    assert importing(CORE, "remat_algorithms") == {}


def test_verifier_and_placement_are_twins():
    assert importing(CORE / "verifier", "remat.placement", "remat.solving.single", "remat.plugin.registry") == {}
    assert importing(CORE / "placement", "remat.verifier", "remat.solving.single", "remat.plugin.registry") == {}


def test_zoo_does_not_judge_itself():
    """Algorithms propose; placement, verification and conclusions are the core's."""
    assert (
        importing(ZOO, "remat.verifier", "remat.solving.verifying", "remat.solving.single", "remat.cli", "remat.report")
        == {}
    )


def test_core_does_not_know_its_renderers():
    floor = [path for path in CORE.glob("*.py") if path.name not in ("__main__.py",)]
    for path in floor:
        assert not {name for name in imports(path) if name.startswith("remat.cli")}, path.name


def test_testing_is_imported_by_nobody():
    for path in CORE.rglob("*.py"):
        if not path.is_relative_to(CORE / "testing"):
            assert not {name for name in imports(path) if name.startswith("remat.testing")}, path.name


def test_public_functions_share_no_name_with_a_module():
    """Importing the module would replace the function."""
    assert {"solve", "verify", "show", "algorithms"} <= set(remat.__all__)
    for name in {*remat.__all__, "solve", "verify", "compare", "sweep", "show", "algorithms"}:
        assert find_spec(f"remat.{name}") is None, f"remat.{name} is a module, too"


def test_public_names_are_there():
    for name in remat.__all__:
        assert getattr(remat, name) is not None
    assert set(remat.__all__) <= set(dir(remat))
    with pytest.raises(AttributeError, match="module 'remat' has no attribute 'resolve'"):
        remat.resolve  # noqa: B018


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


def test_zoo_loads_only_what_is_used():
    document = {"schema": "remat.instance/1", "kind": "tree", "parent": [-1], "output_size": [1]}
    loaded = loaded_after(f"import remat; remat.solve({document!r}, algorithm='keep-all')")
    solvers = {algorithm.solver.partition(":")[0] for algorithm in remat.algorithms()}
    assert loaded & solvers == {"remat_algorithms.dag.keep_all"}
    assert not loaded & {"networkx", "ortools", "pulp", "matplotlib", "scipy", "numba"}


@pytest.mark.parametrize("path", SOURCES, ids=[module_name(path) for path in SOURCES])
def test_files_are_short(path):
    lines = len(path.read_text().splitlines())
    assert lines <= LONGEST, f"{path.relative_to(ROOT)} has {lines} lines; split it by concept"
