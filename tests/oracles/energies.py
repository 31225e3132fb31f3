"""Energy of a plan, read from the documents alone; and the least energy of any schedule of a tiny instance."""

from fractions import Fraction


def energy_of(document, steps):
    """Add the energy of each run and each copy of a plan of a task graph; exactly, as a fraction."""
    machine = document["machine"]
    processors = {}
    for entry in machine["processors"]:
        count = entry.get("count", 1)
        for name in [entry["name"]] if count == 1 else [f"{entry['name']}{k}" for k in range(count)]:
            processors[name] = entry
    reference = next(name for name, entry in processors.items() if entry.get("speed", 1) == 1)
    tasks = {task["id"]: task for task in document["tasks"]}
    sizes = {value["id"]: value["size"] for value in document.get("values", ())}
    sizes |= {task["id"]: task["size"] for task in document["tasks"] if "size" in task}
    total = Fraction(0)
    for step in steps:
        if "run" in step:
            energy = tasks[step["run"]].get("energy", 0)
            if isinstance(energy, dict):
                energy = energy[processors[(step.get("on") or [reference])[0]].get("type", "")]
            total += Fraction(energy)
        elif "copy" in step:
            link = next(
                link for link in machine["links"] if (link["source"], link["target"]) == (step["from"], step["to"])
            )
            amount = step.get("bytes", sizes[step["copy"]])
            total += Fraction(link.get("energy", 0)) * amount
    return total
