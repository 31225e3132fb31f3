"""A machine that runs emitted graphs on terms instead of tensors, and counts bytes; it knows nothing of the rules."""


class Machine:
    """Runs forward and backward.

    A term is the derivation of a tensor: the operator, the terms of its inputs, the number of a random draw, and the
    write history of an input. Each new statistic depends on its old one only; other outputs do not. Bytes follow
    storages: a line holds those of its operands (a view) or new ones, until its last use.
    """

    def __init__(self, recording):
        self.nodes = {node.name: node for node in recording.nodes}
        self.recording = recording
        self.draws = 0
        self.written = {}
        self.terms, self.holds, self.sizes = {}, {}, {}
        self.now = self.peak = 0
        self.results = None
        self.ids = 0

    def run(self, emitted):
        outputs = len(self.recording.outputs)
        self._begin(emitted.forward.inputs)
        self._part(emitted.forward, emitted.forward.outputs)
        returned = [self._end(name) for name in emitted.forward.outputs[:outputs]]
        behind = emitted.forward.outputs[outputs:]
        terms = {name: self.terms[line] for name, line in zip(emitted.saved, behind, strict=True)}
        holds = {name: self.holds[line] for name, line in zip(emitted.saved, behind, strict=True)}
        for line in emitted.forward.outputs[:outputs]:
            holds[f"returned {line}"] = self.holds.get(line, frozenset())
        self.terms, self.holds = terms, holds
        self._begin(name for name in emitted.backward.inputs if name not in emitted.saved)
        self._count()
        self._part(emitted.backward, emitted.backward.outputs)
        gradients = [self._end(name) for name in emitted.backward.outputs]
        self.results = (returned, gradients, {name: self._state(name) for name in self.written}, self.draws)

    def _end(self, name):
        return None if name is None else self.terms[name]

    def _state(self, name):
        return self.written.get(name, name)

    def _begin(self, names):
        for name in names:
            node = self.nodes[name]
            self.terms[name] = None
            self.holds[name] = self._new(node, name) if node.role == "tangent" else frozenset()

    def _new(self, node, name):
        self.ids += 1
        fresh = frozenset((self.ids, held.storage) for held in node.tensors if held is not None)
        self.sizes.update({key: self.recording.storages[key[1]] for key in fresh})
        return fresh

    def _count(self):
        self.now = sum(self.sizes[key] for key in frozenset().union(*self.holds.values()))
        self.peak = max(self.peak, self.now)

    def _part(self, part, outputs):
        last = {}
        for index, line in enumerate(part.lines):
            last.update({other: index for _, other in line.reads})
            last.setdefault(line.name, index)
        last.update({name: len(part.lines) for name in outputs})
        for index, line in enumerate(part.lines):
            self._line(line)
            self._count()
            for name in [name for name in self.holds if last.get(name, len(part.lines)) <= index]:
                del self.holds[name], self.terms[name]

    def _term(self, name):
        """A term; of an input, its state now."""
        term = self.terms[name]
        return self._state(name) if term is None else term

    def _line(self, line):
        node = self.nodes[line.node]
        terms = {read: self._term(other) for read, other in line.reads}
        operands = [self.holds[other] for _, other in line.reads]
        self.holds[line.name] = self._held(line, node, operands)
        if line.from_mask:
            (_, one), (_, two) = line.reads
            mask = self._term(two)
            assert mask[:2] == ("item", 1)
            assert mask[2][1] == (self._term(one),), "another input than that for which the mask was drawn"
            self.terms[line.name] = ("item", 0, mask[2])
        elif node.role == "item":
            term = self._term(line.reads[0][1])
            if term[0] == "normalised":
                term = (*term[:2], term[2].get(node.item))
            self.terms[line.name] = ("item", node.item, term)
        elif node.mutates:
            for target in node.mutates:
                others = tuple(term for read, term in terms.items() if read != target)
                self.written[target] = ("written", self._state(target), node.operator, others)
            self.terms[line.name] = "nothing"
        elif node.statistics:
            plain = tuple(term for read, term in terms.items() if read not in node.statistics)
            what = (node.operator, node.arguments.split("), {")[0].split(", ")[-3:])
            old = dict(zip(node.renewed, (terms[read] for read in node.statistics), strict=False))
            self.terms[line.name] = ("normalised", (str(what), plain), old)
        else:
            drawn = ()
            if node.random:
                self.draws += 1
                drawn = (self.draws,)
            self.terms[line.name] = (node.name if not node.random else node.operator, tuple(terms.values()), *drawn)

    def _held(self, line, node, operands):
        """The storages that a line holds: its own, or for views and items those of what they look at."""
        held = [tensor.storage for tensor in node.tensors if tensor is not None]
        if line.from_mask:
            known, held = {}, held[:1]
        else:
            known = {key[1]: key for keys in operands for key in keys}
        given = {t.storage for n in self.nodes.values() if n.role in ("input", "constant") for t in n.tensors if t}
        self.ids += 1
        for storage in held:
            if storage not in known and storage not in given:
                known[storage] = (self.ids, storage)
                self.sizes[known[storage]] = self.recording.storages[storage]
        return frozenset(known[storage] for storage in held if storage in known)
