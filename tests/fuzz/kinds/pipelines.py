"""Pipelines: all transfer modes, hops, copies, halves, hosts, ranks, exchange, slices, and weights that change."""

OF_WORK = (
    *("forward_time", "backward_time", "weight_time", "output_size", "saved_size", "weight_saved_size"),
    *("gradient_size", "forward_workspace", "backward_workspace"),
)
MODES = ("overlap", "overlap", "blocking", "rendezvous", "grouped")


def pipeline(draw):
    """Draw a pipeline of up to six layers and micro-batches on up to four devices."""
    count, split = draw.whole(1, 6), draw.whole(1, 3)
    types = ["fast", "slow"] if draw.chance(6) else []
    layers = [_layer(draw, split, types) for _ in range(count)]
    if draw.chance(2):
        layers = [layers[0] | {"repeat": count}]
    batches, cluster = draw.whole(1, 6), _cluster(draw, types)
    drawn = {"layers": layers, "micro_batches": batches, "cluster": cluster}
    match draw.whole(0, 9):
        case 0:
            _without_end(draw, drawn)
        case 1:
            _only_forwards(draw, drawn)
        case _:
            _step(draw, drawn, types)
    draw.seldom(drawn, 5, backward_reads=lambda: draw.some(("input", "output"), 2))
    return drawn


def even(draw):
    """Draw a pipeline with whole backwards and at least two layers for each device."""
    return _even(draw, 1)


def split(draw):
    """Draw a pipeline with backwards in two halves and at least two layers for each device."""
    return _even(draw, 2)


def doubled(draw):
    """Draw a pipeline whose layers may lie on two devices of an even number, whose gradients may be exchanged."""
    drawn = _even(draw, draw.pick([1, 1, 2]), devices=draw.pick([2, 2, 4])) | {"copies": 2}
    drawn["micro_batches"] = draw.pick([2, 4, 4, 6, 8])
    draw.seldom(drawn, 3, exchange=lambda: "ring")
    return drawn


def hosted(draw):
    """Draw a pipeline whose devices may send activations to a host."""
    drawn = _even(draw, draw.pick([1, 1, 2]))
    drawn["cluster"]["host"] = _host(draw)
    return drawn


def without_end(draw):
    """Draw a pipeline whose parameters change while micro-batches are in flight."""
    drawn = _even(draw, draw.pick([1, 1, 1, 2]))
    _without_end(draw, drawn)
    return drawn


def inference(draw):
    """Draw a pipeline with forwards only."""
    drawn = _even(draw, 1)
    _only_forwards(draw, drawn)
    return drawn


def slices(draw):
    """Draw a pipeline whose sequences are cut into slices."""
    drawn = _even(draw, draw.pick([1, 1, 2]), devices=draw.whole(1, 2))
    cut = [draw.whole(1, 5) for _ in range(draw.whole(1, 3))]
    drawn["tokens"] = _slices(draw, drawn["layers"], cut)
    drawn["micro_batches"] = draw.whole(1, 2) * len(cut)
    return drawn


def _even(draw, split, devices=None):
    count = draw.pick([1, 2, 2, 2, 3, 3]) if devices is None else devices
    layers = [_layer(draw, split, []) for _ in range(draw.pick([1, count, 2 * count]))]
    if len(layers) == 1:
        layers[0]["repeat"] = 2 * count
    cluster = _cluster(draw, [])
    cluster["devices"][0]["count"] = count
    batches = draw.pick([1, 2, 3, 4, count, 2 * count])
    return {"layers": layers, "micro_batches": batches, "cluster": cluster}


def _without_end(draw, drawn):
    drawn["weights"] = draw.pick(["stash", "double", "double", "single", "predicted"])
    if drawn["weights"] == "double":
        drawn["update_every"] = draw.whole(1, 9)
    if drawn["weights"] in ("single", "predicted"):
        draw.seldom(drawn["layers"][0], 2, discrepancy_size=draw.size)


def _host(draw):
    host = {"bandwidth": draw.pick([1, 2, 5])}
    draw.seldom(host, 3, latency=draw.time, delay=draw.time)
    draw.seldom(host, 4, memory=lambda: draw.size(40))
    return host


def _cluster(draw, types):
    devices = [{"name": "gpu", "count": draw.whole(1, 4)}]
    if types:
        devices = [{"name": name, "count": draw.whole(1, 2)} for name in types]
    for entry in devices:
        draw.seldom(entry, 3, memory=lambda: draw.size(40))
    cluster = {"devices": devices}
    draw.seldom(cluster, 2, transfers=lambda: draw.pick(MODES))
    levels = [{} for _ in range(draw.pick([0, 1, 1, 1, 2]))]
    for level in levels:
        draw.seldom(level, 2, bandwidth=lambda: draw.pick([1, 2, 5, 0.5]))
        draw.seldom(level, 3, latency=draw.time, delay=draw.time)
    if len(levels) > 1:
        levels[0]["devices"] = 2
    return cluster | ({"levels": levels} if levels else {})


def _step(draw, drawn, types):
    """Draw the optional fields of a training step."""
    layers, cluster = drawn["layers"], drawn["cluster"]
    _skip(draw, layers)
    draw.seldom(drawn, 3, copies=lambda: 2)
    if draw.chance(4):
        cluster["host"] = _host(draw)
    if draw.chance(4) and cluster.get("transfers", "overlap") == "overlap":
        drawn["exchange"] = "ring"
        draw.seldom(layers[-1], 2, update_time=draw.time)
    if draw.chance(6):
        drawn["sharding"] = {"data": draw.whole(1, 3)}
        if drawn["sharding"]["data"] > 1:
            drawn["sharding"]["zero"] = draw.whole(0, 3)
            draw.seldom(drawn["sharding"], 2, bandwidth=lambda: draw.pick([1, 2, 5]), latency=draw.time)
    if draw.chance(4):
        for layer in layers:
            layer["paired_time"] = _paired_time(draw, layer, types)
    if "copies" not in drawn and draw.chance(8):
        cut = [draw.whole(1, 5) for _ in range(draw.whole(1, 3))]
        drawn["tokens"] = _slices(draw, layers, cut)
        drawn["micro_batches"] = draw.whole(1, 2) * len(cut)
    elif draw.chance(8):
        for layer in layers:
            if "paired_time" not in layer:
                work = _work(draw, layer)
                draw.seldom(work, 2, forward_collective_size=draw.size, backward_collective_size=draw.size)
                layer["tensor"] = {"2": work}


def _only_forwards(draw, drawn):
    """Draw layers that only run forwards, whose parameters do not change."""
    drawn["weights"] = "fixed"
    kept = ("forward_time", "output_size", "forward_workspace", "parameter_size", "repeat")
    drawn["layers"] = [{key: value for key, value in layer.items() if key in kept} for layer in drawn["layers"]]
    draw.seldom(drawn, 3, copies=lambda: 2)


def _layer(draw, split, types):
    def time():
        return {name: draw.time() for name in types} if types and draw.chance(2) else draw.time()

    layer = {"forward_time": time(), "backward_time": time(), "saved_size": draw.size()}
    draw.seldom(layer, 2, output_size=draw.size, parameter_size=draw.size)
    draw.seldom(layer, 4, forward_workspace=draw.size, backward_workspace=draw.size, optimizer_size=draw.size)
    draw.seldom(layer, 6, gradient_size=draw.size, parameter_gradient_size=draw.size)
    if split == 2 or (split == 3 and draw.chance(2)):
        layer["weight_time"] = draw.time() or draw.time_scale
        draw.seldom(layer, 2, weight_saved_size=draw.size)
    return layer


def _paired_time(draw, layer, types):
    share = draw.whole(0, 2)

    def between(of):
        given = (layer["forward_time"], layer["backward_time"], layer.get("weight_time", 0))
        forward, backward, weight = (time[of] if isinstance(time, dict) else time for time in given)
        more = min(forward, backward)
        return weight + max(forward, backward) + (0, more // 2, more)[share]

    return {name: between(name) for name in types} if types else between("")


def _work(draw, layer):
    """Draw other times and sizes for a layer, which the same types of devices can run."""
    other = _layer(draw, 2 if "weight_time" in layer else 1, [])
    work = {key: other.get(key, 0) for key in OF_WORK if key in layer or key in other}
    for key in OF_WORK:
        if isinstance(layer.get(key), dict):
            work[key] = dict.fromkeys(layer[key], work[key])
    return work


def _slices(draw, layers, cut):
    """Draw what slices of a sequence take, and the cut that they are."""
    rows = []
    for number, size in enumerate(cut):
        works = [_work(draw, layer) for layer in layers]
        for work in works:
            draw.seldom(work, 2, cache_gradient_size=draw.size)
        rows.append({"tokens": size, "before": sum(cut[:number]), "layers": works})
    return {"length": sum(cut), "slices": rows, "cut": cut}


def _skip(draw, layers):
    """Let some layers read the outputs of others than the one before."""
    if len(layers) < 3 or not draw.chance(3):
        return
    for number, layer in enumerate(layers):
        layer["name"] = f"l{number}"
        earlier = [f"l{k}" for k in range(number - 1)]
        if earlier and draw.chance(2):
            layer["reads"] = ["previous", *(draw.some(earlier, 2) or earlier[:1])]
    if draw.chance(2):
        _branch(draw, layers)


def _branch(draw, layers):
    """Let some layers not read the one before, if another layer reads that."""
    for layer in layers[1:]:
        if draw.chance(2):
            layer["reads"] = [name for name in layer.get("reads", ["previous"]) if name != "previous"]
    for number, following in enumerate(layers[1:]):
        read = {name for layer in layers for name in layer.get("reads", ())}
        if "previous" not in following.get("reads", ["previous"]) and f"l{number}" not in read:
            following["reads"] = [*following["reads"], "previous"]
