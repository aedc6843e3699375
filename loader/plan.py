"""Which samples make which step, and how a step is cut for a device. Pure: values in, values out.

`plan_epoch` decides meaning and knows no hardware; `split_step` decides hardware and changes no meaning.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from shards.errors import ConfigError, PlanError, listing
from shards.geometry import ALIGN, CLUSTER, POOL, Padding, Rows, Sizes, boxes_of, real_pixels, size_clusters, size_order
from shards.sample import MAX_SAMPLE_PIXELS


@dataclass(frozen=True, kw_only=True)
class PlanConfig:
    """How an epoch's samples become steps. Part of a run's meaning: none of it depends on hardware."""

    images_per_step: int = 16
    """Images whose gradients one optimiser update averages."""
    pool: int = POOL
    """Samples ordered by size together. Larger pads less and mixes less."""
    cluster: int = CLUSTER
    """Samples of similar size that stay neighbours. A step of 16 mixes two clusters."""
    seed: int = 0
    """With the epoch, decides every permutation."""
    align: int = ALIGN
    """Pixels both sides of a box are a multiple of."""
    max_pixels: int = MAX_SAMPLE_PIXELS
    """Largest box one sample may need, pixels; a larger one fails the plan by name."""

    def __post_init__(self) -> None:
        counts = asdict(self)
        problems = [
            f"{name} is {value}, expected at least 1" for name, value in counts.items() if value < 1 and name != "seed"
        ]
        if self.seed < 0:
            problems.append(f"seed is {self.seed}, expected 0 or more")
        if self.cluster >= 1 and self.pool % self.cluster:
            problems.append(f"pool is {self.pool}, expected a multiple of cluster = {self.cluster}")
        if problems:
            raise ConfigError(listing("plan", problems))

    @property
    def fingerprint(self) -> str:
        """Identity of these settings."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """One epoch, dealt: every row once, `images_per_step` a step; the last step may be shorter."""

    order: Rows
    images_per_step: int

    def __len__(self) -> int:
        """Steps."""
        return -(-len(self.order) // self.images_per_step)

    def step(self, number: int) -> Rows:
        """The rows of step `number`, from 0. A seek: no earlier step is looked at."""
        return self.order[number * self.images_per_step : (number + 1) * self.images_per_step]


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """Samples that run together, padded to one box."""

    rows: Rows
    box: tuple[int, int]
    """Height and width, pixels."""

    @property
    def padded_pixels(self) -> int:
        """Pixels the device computes on."""
        return len(self.rows) * self.box[0] * self.box[1]


def plan_epoch(
    sizes: Sizes, config: PlanConfig, *, epoch: int, name_of: Callable[[int], str] = "row {}".format
) -> EpochPlan:
    """Deal one epoch's samples into steps of similar-sized clusters.

    Every sample appears in exactly one step. The result depends on the arguments alone, so any process,
    anywhere, that plans the same epoch gets the same steps.

    Args:
        sizes: True height and width of each sample, [N, 2] int32, in pixels.
        config: How samples become steps.
        epoch: Which epoch, from 0; each deals anew.
        name_of: What to call a row in a message.

    Raises:
        PlanError: A sample is larger than `config.max_pixels`; the message names it.
    """
    boxes = boxes_of(sizes, config.align)
    too_large = np.flatnonzero(boxes.prod(axis=1) > config.max_pixels)
    if len(too_large):
        row = int(too_large[0])
        (height, width), more = boxes[row], f", and so do {len(too_large) - 1:,} more" if len(too_large) > 1 else ""
        raise PlanError(
            f"{name_of(row)} needs a box of {height:,} x {width:,} = {height * width:,} pixels{more}; "
            f"at most {config.max_pixels:,} are allowed: raise --max-pixels, or pack without it"
        )
    rng = np.random.default_rng((config.seed, epoch))
    order = size_clusters(sizes, pool=config.pool, cluster=config.cluster, phase=epoch, rng=rng, align=config.align)
    return EpochPlan(order, config.images_per_step)


def split_step(
    rows: Rows, sizes: Sizes, *, pixel_budget: int, launch_pixels: int = 0, align: int = ALIGN, ranks: int = 1
) -> tuple[tuple[MicroBatch, ...], ...]:
    """Cut one step into micro-batches and spread them over ranks.

    In size order, the cut with the fewest padded pixels plus launch overhead, each micro-batch within the budget;
    a sample larger than the budget is alone. Every row is on exactly one rank. Least cost by dynamic programming over
    the positions of the last cut, O(n^2) for n rows, stopping where the budget does.

    Args:
        rows: The step's samples, [n].
        sizes: True height and width of every sample, [N, 2], pixels.
        pixel_budget: Most padded pixels of a micro-batch: what the device's memory decides.
        launch_pixels: What starting a micro-batch costs, as the pixels computed in the same time.
        align: Pixels both sides of a box are a multiple of.
        ranks: Devices that share the step.

    Returns:
        For each rank its micro-batches; a rank has none when the step has fewer than `ranks` micro-batches.
    """
    ordered = rows[size_order(sizes[rows], align)]
    boxes = [(int(height), int(width)) for height, width in boxes_of(sizes[ordered], align)]
    micro_batches = [
        MicroBatch(ordered[start:end], (max(h for h, _ in boxes[start:end]), max(w for _, w in boxes[start:end])))
        for start, end in _cuts(boxes, pixel_budget, launch_pixels)
    ]
    return _spread(micro_batches, ranks)


def _cuts(boxes: list[tuple[int, int]], pixel_budget: int, launch_pixels: int) -> list[tuple[int, int]]:
    """The cheapest cut of a sequence of boxes: (start, end) of each piece, in order."""
    best = [0]
    last_start = [0]
    for end in range(1, len(boxes) + 1):
        height, width = boxes[end - 1]
        cheapest, at = best[end - 1] + height * width + launch_pixels, end - 1
        for start in range(end - 2, -1, -1):
            height, width = max(height, boxes[start][0]), max(width, boxes[start][1])
            pixels = (end - start) * height * width
            if pixels > pixel_budget:
                break
            cost = best[start] + pixels + launch_pixels
            if cost <= cheapest:
                cheapest, at = cost, start
        best.append(cheapest)
        last_start.append(at)
    pieces = []
    end = len(boxes)
    while end:
        pieces.append((last_start[end], end))
        end = last_start[end]
    return pieces[::-1]


def _spread(micro_batches: list[MicroBatch], ranks: int) -> tuple[tuple[MicroBatch, ...], ...]:
    """The costliest first, each to the rank with the least work (longest processing time first, Graham 1969)."""
    if ranks == 1:
        return (tuple(micro_batches),)
    work: list[list[MicroBatch]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    for micro_batch in sorted(micro_batches, key=lambda m: -m.padded_pixels):
        rank = load.index(min(load))
        work[rank].append(micro_batch)
        load[rank] += micro_batch.padded_pixels
    return tuple(tuple(part) for part in work)


def planned_padding(micro_batches: Iterator[MicroBatch], sizes: Sizes) -> Padding:
    """What a run's micro-batches pad, exactly and beforehand."""
    total = Padding(0, 0)
    for micro_batch in micro_batches:
        total += Padding(real_pixels(sizes[micro_batch.rows]), micro_batch.padded_pixels)
    return total
