"""Contenders timed in turn in one process, so that what else the machine does meets all of them alike."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture


@dataclass(frozen=True)
class Race:
    """Seconds of each contender in each round."""

    seconds: dict[str, list[float]]

    def median(self, name: str) -> float:
        """Seconds."""
        return median(self.seconds[name])

    def times_faster(self, name: str, than: str) -> float:
        """By how much `name` is faster: the median over rounds of the ratio within a round."""
        pairs = zip(self.seconds[than], self.seconds[name], strict=True)
        return median(other / own for other, own in pairs)


def race(benchmark: BenchmarkFixture, contenders: Mapping[str, Callable[[], object]], *, rounds: int) -> Race:
    """Run every contender once a round; pytest-benchmark's own table shows the first.

    The order is drawn anew each round: a heap left behind by bigger tensors was seen to cost the next in line 15 %.
    Nothing is warmed up: that is the caller's, who knows what a first pass is good for.
    """
    first, *others = contenders
    rng = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    later: list[str] = []

    def timed(name: str) -> None:
        started = time.perf_counter()
        contenders[name]()
        seconds[name].append(time.perf_counter() - started)

    def run_those_before() -> None:
        order = rng.permutation(list(contenders)).tolist()
        place = order.index(first)
        later[:] = order[place + 1 :]
        for name in order[:place]:
            timed(name)

    def run_those_after() -> None:
        for name in later:
            timed(name)

    benchmark.pedantic(  # type: ignore[no-untyped-call]
        partial(timed, first), setup=run_those_before, teardown=run_those_after, rounds=rounds
    )
    result = Race(seconds)
    benchmark.extra_info["seconds"] = seconds
    benchmark.extra_info["times_faster"] = {name: result.times_faster(first, than=name) for name in others}
    return result
