"""PyTorch's caching allocator as a list of blocks that is searched from the start each time."""

MIB = 1 << 20


class Blocks:
    """Segments in the order of their reservation, each a list of [size, is free]; one pool for small requests."""

    def __init__(self, capacity=None):
        self.segments = []  # (address, is small, blocks)
        self.capacity, self.end = capacity, 0

    @property
    def reserved(self):
        return sum(size for _, _, blocks in self.segments for size, _ in blocks)

    def exceeds(self, wanted):
        return self.capacity is not None and self.reserved + wanted > self.capacity

    def free_blocks(self, small):
        found = []
        for number, (address, of_small, blocks) in enumerate(self.segments):
            for place, (size, is_free) in enumerate(blocks):
                if is_free and of_small == small:
                    found.append((size, address, number, place))
                address += size
        return found

    def allocate(self, request):
        size = max(512, (request + 511) // 512 * 512)
        small = size <= MIB
        fitting = [block for block in self.free_blocks(small) if block[0] >= size]
        if not fitting:
            if small:
                wanted = 2 * MIB
            elif size < 10 * MIB:
                wanted = 20 * MIB
            else:
                wanted = (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
            if self.exceeds(wanted):  # a retry follows the release of every segment that is one free block
                self.segments = [one for one in self.segments if one[2] != [[one[2][0][0], True]]]
                if self.exceeds(wanted):
                    return None
            self.segments.append((self.end, small, [[wanted, True]]))
            self.end += wanted
            fitting = [block for block in self.free_blocks(small) if block[0] >= size]
        whole, address, number, place = min(fitting)
        blocks = self.segments[number][2]
        rest = whole - size
        if (small and rest >= 512) or (not small and rest > MIB):
            blocks[place : place + 1] = [[size, False], [rest, True]]
        else:
            blocks[place][1] = False
        return address

    def free(self, address):
        for begin, _, blocks in self.segments:
            for block in blocks:
                if begin == address and not block[1]:
                    block[1] = True
                    self.merge(blocks)
                    return
                begin += block[0]
        raise AssertionError(address)

    def merge(self, blocks):
        place = 0
        while place + 1 < len(blocks):
            if blocks[place][1] and blocks[place + 1][1]:
                blocks[place][0] += blocks.pop(place + 1)[0]
            else:
                place += 1
