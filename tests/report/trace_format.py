"""The part of the trace-event format that traces use: complete events, counters and metadata.

From "Trace Event Format" (the Chromium project's document), sections on the JSON object format, complete events,
counter events and metadata events.
"""

from collections import defaultdict

KEYS = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "M": {"name", "ph", "pid", "args"},
}
METADATA = {"process_name": ("name", str), "thread_name": ("name", str), "thread_sort_index": ("sort_index", int)}


def number(value):
    return type(value) in (int, float) and 0 <= value < float("inf")


def problems(trace):
    """Return what is wrong with a trace, a line each."""
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["no list of traceEvents"]
    found = []
    if trace.get("displayTimeUnit") not in (None, "ms", "ns"):
        found.append("displayTimeUnit is neither ms nor ns")
    events = trace["traceEvents"]
    for k, event in enumerate(events):
        found += [f"event {k}: {what}" for what in _event(event)]
    if not found:
        found = [*_tracks(events), *_counters(events), *_nesting(events)]
    return found


def _event(event):
    phase = event.get("ph") if isinstance(event, dict) else None
    if phase not in KEYS:
        yield f"unknown phase {phase!r}"
        return
    if missing := KEYS[phase] - event.keys():
        yield f"lacks {sorted(missing)}"
        return
    for key in ("pid", "tid"):
        if key in event and type(event[key]) is not int:
            yield f"{key} is no integer"
    for key in ("ts", "dur"):
        if key in event and not number(event[key]):
            yield f"{key} is no number >= 0"
    if not isinstance(event["name"], str) or not isinstance(event["args"], dict):
        yield "name is not a text, or args no object"
    elif phase == "C" and not (event["args"] and all(number(value) for value in event["args"].values())):
        yield "a counter has numbers, and at least one"
    elif phase == "M":
        key, kind = METADATA.get(event["name"], (None, None))
        if key is None or set(event["args"]) != {key} or type(event["args"][key]) is not kind:
            yield f"metadata {event['name']!r} with {event['args']!r}"
        elif event["name"] != "process_name" and "tid" not in event:
            yield "a thread's metadata lacks tid"


def _tracks(events):
    """Every track has one name and one place; every process has a name."""
    named = defaultdict(list)
    for event in events:
        if event["ph"] == "M":
            named[event["name"], event["pid"], event.get("tid")].append(event)
    yield from (f"{key} is given {len(given)} times" for key, given in named.items() if len(given) > 1)
    for event in events:
        if event["ph"] == "X":
            for name in ("thread_name", "thread_sort_index"):
                if (name, event["pid"], event["tid"]) not in named:
                    yield f"track {event['tid']} has no {name}"
        if ("process_name", event["pid"], None) not in named:
            yield f"process {event['pid']} has no name"


def _counters(events):
    last = {}
    for event in events:
        if event["ph"] == "C":
            if event["ts"] < last.get((event["pid"], event["name"]), 0):
                yield f"counter {event['name']} goes back in time"
            last[event["pid"], event["name"]] = event["ts"]


def _nesting(events):
    """Complete events of a track are in order, and lie within each other or apart."""
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for track, intervals in tracks.items():
        near = 1e-9 * max(end for _, end in intervals)
        around = []
        for k, (start, end) in enumerate(intervals):
            if k and start < intervals[k - 1][0]:
                yield f"track {track}: events are not in order"
            while around and around[-1] <= start + near:
                around.pop()
            if around and end > around[-1] + near:
                yield f"track {track}: event {k} overlaps another one in part"
            around.append(end)
