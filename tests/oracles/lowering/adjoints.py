"""Lower adjoints of time loops."""

from .chains import chain_graph
from .records import Task


def lower_adjoint(document, first):
    steps = adjoint_steps(document)
    tape = has_tape(document)
    # Step i ends in x_{i+1}: that is the state of the step after it; the last one exists only with a tape.
    followers = steps[1:] + ([steps[-1]] if tape else [])
    stages = [
        {
            "forward_time": step.get("forward_time"),
            "saving_time": step["tape_time"],
            "backward_time": step["backward_time"],
            "output_size": after["state_size"],
            "saved_size": step["tape_size"],
            "gradient_size": after["adjoint_size"],
            "forward_workspace": 0,
            "saving_workspace": 0,
            "backward_workspace": 0,
            "backward_reads": ["saved"] if tape else ["input"],
        }
        for step, after in zip(steps, followers, strict=False)
    ]
    inputs = [("x0", first)]
    initial = document.get("initial_state", "live")
    if initial != "live":
        inputs.append(("x0", initial))
    last = len(stages)
    return chain_graph(
        stages=stages,
        input_size=steps[0]["state_size"],
        input_gradient_size=steps[0]["adjoint_size"],
        loss=Task(0 if tape else steps[-1]["backward_time"], (f"x{last}",), (f"y{last}",)),
        in_place=True,
        saving=tape,
        inputs=inputs,
        first=first,
        static=document.get("static_memory", 0),
    )


def adjoint_steps(document):
    """Return one full dictionary per step, instance-wide figures filled in."""
    given = document["steps"]
    steps = [{} for _ in range(given)] if isinstance(given, int) else given
    keys = ("forward_time", "backward_time", "state_size", "adjoint_size", "tape_size", "tape_time")
    common = {key: document[key] for key in keys if document.get(key) is not None}
    full = []
    for step in steps:
        step = common | {key: value for key, value in step.items() if value is not None}
        # The defaults follow the step's own figures, not those of the instance.
        step.setdefault("adjoint_size", step["state_size"])
        step.setdefault("tape_size", 0)
        step.setdefault("tape_time", step.get("forward_time"))
        full.append(step)
    return full


def has_tape(document):
    per_step = document["steps"] if isinstance(document["steps"], list) else []
    return any(owner.get("tape_size") is not None for owner in [document, *per_step])
