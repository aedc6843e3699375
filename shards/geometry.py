"""Sizes and nothing but sizes: boxes, padding, width buckets, and which samples are alike. Arithmetic only.

A size is (height, width) in pixels; a table of sizes is int [N, 2] in that order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Sizes = NDArray[np.int32]
Rows = NDArray[np.int64]

ALIGN = 32
"""Pixels both sides of a box are a multiple of: the network halves five times, 2**5."""

CLUSTER = 8
"""Samples of similar size that stay neighbours."""

POOL = 4096
"""Samples ordered by size together. Larger pads less and mixes less; 4,096 costs 0.6 points over the floor."""


def boxes_of(sizes: Sizes, align: int = ALIGN) -> NDArray[np.int64]:
    """The box of each sample alone: both sides rounded up to a multiple of `align`. [N, 2]."""
    return -(-sizes.astype(np.int64) // align) * align


def real_pixels(sizes: Sizes) -> int:
    """Pixels of the samples themselves."""
    return int(np.prod(sizes, axis=1, dtype=np.int64).sum())


@dataclass(frozen=True)
class Padding:
    """How many of the pixels a device computes on are real."""

    real: int
    """Pixels of the samples themselves."""
    padded: int
    """Pixels of the boxes they are computed in."""

    @property
    def share(self) -> float:
        """Share of the computed pixels that are not real, 0 to 1."""
        return 1 - self.real / self.padded if self.padded else 0.0

    def __add__(self, other: "Padding") -> "Padding":
        return Padding(self.real + other.real, self.padded + other.padded)


def floor_padding(sizes: Sizes, align: int = ALIGN) -> Padding:
    """The padding that no batching can remove: each sample alone in its own box."""
    return Padding(real_pixels(sizes), int(boxes_of(sizes, align).prod(axis=1).sum()))


def batched_padding(sizes: Sizes, order: Rows, batch: int, align: int = ALIGN) -> Padding:
    """Padding when `order` is cut into batches of `batch` samples, each padded to one common box."""
    boxes = boxes_of(sizes, align)[order]
    starts = np.arange(0, len(order), batch)
    common = np.maximum.reduceat(boxes, starts, axis=0).prod(axis=1) if len(order) else np.zeros(0, np.int64)
    counts = np.diff(np.append(starts, len(order)))
    return Padding(real_pixels(sizes[order]), int((common * counts).sum()))


def size_order(sizes: Sizes, align: int = ALIGN) -> Rows:
    """Rows ordered so that neighbours have similar boxes: by height class, widths back and forth (snake).

    The sort is stable and looks at boxes, not at pixels: samples of one box keep the order they came in, so
    a shuffled table stays shuffled where it costs nothing.
    """
    boxes = boxes_of(sizes, align) // align
    heights, widths = boxes[:, 0], boxes[:, 1]
    span = int(widths.max(initial=0)) + 1
    back_and_forth = np.where(heights % 2 == 0, widths, span - 1 - widths)
    return np.argsort(heights * span + back_and_forth, kind="stable")


def size_clusters(
    sizes: Sizes, *, phase: int, rng: np.random.Generator, pool: int = POOL, cluster: int = CLUSTER, align: int = ALIGN
) -> Rows:
    """Shuffle the samples, then bring similar sizes together in clusters.

    Samples are permuted and cut into pools; inside a pool they are ordered by size, rolled by `phase`, and cut into
    clusters, and the clusters are shuffled. The phase moves every cut, so neighbours differ from epoch to epoch even
    when one pool holds everything and no two sizes are equal; it costs one mixed cluster a pool.

    Args:
        sizes: Height and width of each sample, [N, 2], pixels.
        pool: Samples ordered together; a multiple of `cluster`.
        cluster: Samples of similar size that stay neighbours.
        phase: How far the cuts are moved, samples: the epoch.
        rng: Where the randomness comes from.
        align: Pixels both sides of a box are a multiple of.

    Returns:
        Every row exactly once, [N]. Consecutive runs of `cluster` rows are the clusters; the last run, alone, may be
        shorter.
    """
    permuted = rng.permutation(len(sizes))
    dealt = [permuted[:0]]
    for start in range(0, len(permuted), pool):
        drawn = permuted[start : start + pool]
        together = np.roll(drawn[size_order(sizes[drawn], align)], phase % cluster)
        whole = len(together) // cluster * cluster
        clusters = together[:whole].reshape(-1, cluster)
        dealt += [clusters[rng.permutation(len(clusters))].ravel(), together[whole:]]
    return np.concatenate(dealt)


def bucket_edges(widths: NDArray[np.int32], buckets: int, align: int = ALIGN) -> tuple[int, ...]:
    """Upper edges (inclusive, aligned) of at most `buckets` width ranges that hold about equally many samples."""
    quantiles = np.quantile(widths, np.arange(1, buckets + 1) / buckets, method="higher").astype(np.int64)
    return tuple(int(edge) for edge in np.unique(-(-quantiles // align) * align))


def bucket_of(widths: NDArray[np.int32], edges: Sequence[int]) -> NDArray[np.int64]:
    """The bucket of each width: the first whose edge is not below it."""
    return np.searchsorted(np.asarray(edges), widths, side="left").astype(np.int64)
