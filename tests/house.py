"""The plan of the house, as the architecture test holds it and CONTRIBUTING.md prints it: ``python -m tests.house``."""

import ast
import sys
from functools import cache

from tests import places

CORE, ZOO = places.ROOT / "solver" / "remat", places.ROOT / "algorithms" / "remat_algorithms"
SOURCES = sorted([*CORE.rglob("*.py"), *ZOO.rglob("*.py")])

CORE_FLOORS = (
    ("cli", "one command a file"),
    ("comparing", "`remat.compare`: plan, workers, journal, cells; its tables and page"),
    ("report", "one schedule or one sweep: text, plots, views, trace"),
    ("adjoint", "the old path of time_loops"),
    ("time_loops", "time loops in a running code: online, streaming"),
    ("jax torch", "the faces of the bridges to JAX and PyTorch"),
    ("bridges", "in and out of other programs"),
    ("testing", "the conformance suite"),
    ("solving", "entry, problem setup, conclusion, result; questions: minimum budget, largest batch, sweep"),
    ("verifier placement", "the twins: they share nothing"),
    ("plugin", "the contract: `Problem`, `Proposal`, `Context`, `Options`, `Algorithm`, emitters"),
    ("schedule", "steps (columns), the document, operations and actions of time loops"),
    ("building", "builders: instances from arrays and graphs in Python"),
    ("instance", "formats, loading, digest, scaling, lowering"),
    ("graph", "what everything lowers to: task graph, machine, chain arrays, bounds"),
    ("generate", "seeded and analytic instances"),
    ("documents", "reading and writing files"),
    ("units", "sizes and times"),
    ("errors version", "the exception tree, calls with wrong arguments; the version"),
    ("messages", "the text of messages: one printable line, never longer than a limit"),
)
"""Folders (and single files) of the core from top to bottom: each imports only from those below it."""

ZOO_FLOORS = (
    ("joint", "solvers that combine families"),
    ("offload parallel", "other memories; other processors"),
    ("dag tree", "task graphs; task trees"),
    ("layout", "addresses of buffers"),
    ("chain", "chains of stages"),
    ("adjoint", "time loops"),
    ("kit", "tools that the families share"),
)
"""Folders of the zoo from top to bottom; of the core they import `remat.plugin` and `remat.placement`."""

INSIDE = {
    "dag": ("literature anytime programs", "plans", "order"),
    "chain": ("rotor exact floating",),
}

LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 600, 80, 8
EXEMPT = {}
"""Modules that may be long, wide or in a circle, and why."""


def module_name(path):
    """``solver/remat/graph/names.py`` -> ``remat.graph.names``."""
    parts = path.relative_to(CORE.parent if path.is_relative_to(CORE) else ZOO.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCES}


@cache
def parsed(path):
    """The syntax tree of a source, which must not be changed."""
    return ast.parse(path.read_text())


@cache
def imports(path, *, typing=True):
    """Modules and names that a file imports anywhere, optionally without imports for type checkers."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    found = set()
    for node in _nodes(parsed(path), typing):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.update(f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func).endswith("import_module") and node.args:
            named = node.args[0]
            found.update([named.value] if isinstance(named, ast.Constant) else [])
    return frozenset(found)


def _name(function):
    """The last name of what is called: `b` of ``b()`` and of ``a.b()``."""
    return getattr(function, "attr", getattr(function, "id", ""))


def _nodes(tree, typing):
    pending = [tree]
    while pending:
        for child in ast.iter_child_nodes(pending.pop()):
            if not typing and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            yield child
            pending.append(child)


def module_of(name):
    """The module of ours that an imported name is, or is in; None for other packages."""
    while name:
        if name in MODULES:
            return name
        name = name.rpartition(".")[0]
    return None


def floor_of(module, floors):
    """Floor of a module, counted from the bottom; None for modules without a floor (``__init__``, ``__main__``)."""
    parts = module.split(".")
    for height, (rooms, _) in enumerate(reversed(floors)):
        if len(parts) > 1 and parts[1] in rooms.split():
            return height
    return None


def upward(floors, root):
    """Yield imports that run upwards, or between separate packages of one layer."""
    for module, path in MODULES.items():
        own = floor_of(module, floors)
        if not module.startswith(f"{root}.") or own is None:
            continue
        for name in sorted(imports(path)):
            other = module_of(name)
            if other == root and own < len(floors) - 1:
                yield f"{module} -> {other}, the public face"
            if other is None or not other.startswith(f"{root}."):
                continue
            height = floor_of(other, floors)
            same_room = other.split(".")[1] == module.split(".")[1]
            if height is not None and not same_room and height >= own:
                yield f"{module} -> {other}"


def circles():
    """Files that import each other in a circle, faces (``__init__``) aside: Tarjan's strongly connected components."""
    edges = {}
    for module, path in MODULES.items():
        reached = {module_of(name) for name in imports(path, typing=False)} - {None, module}
        edges[module] = sorted(other for other in reached if MODULES[other].name != "__init__.py")
    order, low, stack, found = {}, {}, [], []

    def visit(module):
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in edges[module]:
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            part = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            found.extend([sorted(part)] if len(part) > 1 else [])

    sys.setrecursionlimit(20_000)
    for module in MODULES:
        if module not in order:
            visit(module)
    return found


def table():
    """The floors as text, as CONTRIBUTING.md has them."""
    lines = []
    for root, floors in (("solver/remat", CORE_FLOORS), ("algorithms/remat_algorithms", ZOO_FLOORS)):
        lines.append(f"    {root}/")
        for rooms, meaning in floors:
            shown = "  ".join(room + ("/" if (places.ROOT / root / room).is_dir() else ".py") for room in rooms.split())
            lines.append(f"      {shown:<34}{meaning}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
