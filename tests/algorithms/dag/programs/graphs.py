"""Small training graphs: those on which reruns pay."""

from hypothesis import strategies as st

SMALL = st.integers(0, 6)
DOCUMENT = {"schema": "remat.instance/1", "kind": "dag"}


@st.composite
def training_graphs(draw, *, largest=4, size=SMALL, time=SMALL):
    """Draw a chain of forward tasks with skip connections, and a backward task for each; n <= 2 largest."""
    count = draw(st.integers(2, largest))
    tasks = []
    for i in range(count):
        reads = [f"f{i - 1}"] if i else []
        if i > 1 and draw(st.booleans()):
            reads.append(f"f{draw(st.integers(0, i - 2))}")
        tasks.append({"id": f"f{i}", "time": draw(time), "reads": reads, "size": draw(size)})
    for i in reversed(range(count)):
        reads = [f"f{i}"] + ([f"f{i - 1}"] if i else []) + ([f"b{i + 1}"] if i < count - 1 else [])
        tasks.append({"id": f"b{i}", "time": draw(time), "reads": reads, "size": draw(size)})
    for task in tasks:
        if draw(st.integers(0, 4)) == 4:
            task["workspace"] = draw(size)
        if draw(st.integers(0, 6)) == 6:
            task["in_place"] = True
    document = DOCUMENT | {"tasks": tasks}
    if draw(st.booleans()):
        first = tasks[draw(st.integers(0, count - 1))]
        cheap = {"id": "other", "time": draw(time), "reads": first["reads"][:1], "writes": [first["id"]]}
        tasks.append(cheap | {"required": False})
    if draw(st.integers(0, 2)) == 2:
        document["outputs"] = [draw(st.sampled_from([task["id"] for task in tasks if "size" in task]))]
    return document
