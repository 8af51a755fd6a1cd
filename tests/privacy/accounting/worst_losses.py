"""The two adversaries' losses, step by step as devices train: means of clipped gradients over the records drawn.

Nothing here knows their laws; see `h2fdp.privacy.accounting.adversaries`.
"""

import math
from collections import defaultdict
from itertools import combinations, product

PERIOD = 1e-7  # of the stretches of v, which is moved by no more than that
SHORT = 1e-3  # of a period: where everything is turned


def turned(places):
    """Whether data point along u there: where any of v's coordinates is in a short stretch."""
    return any(place % PERIOD < SHORT * PERIOD for place in places)


def clipped(vector, norm):
    length = math.sqrt(math.fsum(each**2 for each in vector))
    return vector if length <= norm else [each * norm / length for each in vector]


class Device:
    """One whose steps are one unit long at most (eta = G = 1): b = q D records expected, mean as the scope says.

    Args:
        pushing: data have no gradient, and the record always the same.
    """

    def __init__(self, records, rate, scope, pushing):
        self.records, self.expected, self.scope, self.pushing = records, rate * records, scope, pushing
        self.unit = self.expected / math.ceil(self.expected * (1 - 1e-9)) if scope == "record" and not pushing else 1.0
        counts = range(1, records + 1) if scope == "record" else [0]
        # How far a step takes v that is meant to take it one unit, by the number of data beside the record.
        self.pulls = sorted({self.scale(1 - n) if scope == "record" else 1.0 for n in counts} - {0.0})

    def scale(self, net):
        share = self.unit / self.expected
        return share * min(1.0, 1 / (abs(net) * share)) if net else share

    def data(self, v):
        direction = 0.0 if self.pushing else 1.0 if turned(v) else -1.0
        length = self.unit if self.scope == "record" else 1e6
        return [direction * length, *(0.0 for _ in v)]

    def attacked(self, v):
        moves = [0.0 for _ in v]
        if not self.pushing and not turned(v):
            moves = [
                ((1 + SHORT / 2) * PERIOD - place % PERIOD) / pull for place, pull in zip(v, self.pulls, strict=True)
            ]
        length = self.unit if self.scope == "record" else 1e15
        return [length * math.sqrt(1 - math.fsum(move**2 for move in moves)), *(length * move for move in moves)]

    def upload(self, drawn, others):
        """How far u goes in the steps whose batches hold the record or not, and so many others."""
        u, v = 0.0, [PERIOD / 2 for _ in self.pulls]
        for own, count in zip(drawn, others, strict=True):
            gradients = count * [self.data(v)] + own * [self.attacked(v)]
            if not gradients:
                continue
            if self.scope == "record":
                gradients = [clipped(each, 1.0) for each in gradients]
            divisor = self.expected if self.scope == "record" else len(gradients)
            step = clipped([math.fsum(each) / divisor for each in zip(*gradients, strict=True)], 1.0)
            u, v = u + step[0], [place + move for place, move in zip(v, step[1:], strict=True)]
        return u


def batches(records, rate, sampling):
    """((record drawn, others drawn), probability) of each possible batch; all subsets are gone through."""
    found = defaultdict(float)
    size = min(max(round(rate * records), 1), records)
    for count in range(records + 1):
        for chosen in combinations(range(records), count):
            own = 0 in chosen
            if sampling == "poisson":
                found[own, count - own] += rate**count * (1 - rate) ** (records - count)
            elif count == size:
                found[own, count - own] += 1 / math.comb(records, size)
    return list(found.items())


def outcomes(records, rate, steps, sampling, scope, pushing, present):
    """(position, probability) of u after so many steps, over all batches of all steps; a null record is not counted."""
    device = Device(records, rate, scope, pushing)
    for drawn in product(batches(records, rate, sampling), repeat=steps):
        chance = math.prod(each for _, each in drawn)
        pattern = [own and present for (own, _), _ in drawn]
        yield device.upload(pattern, [others for (_, others), _ in drawn]), chance
