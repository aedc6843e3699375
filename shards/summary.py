"""What `inspect` tells of a dataset: counts, sizes, classes, padding. Read from the manifest alone."""

from dataclasses import dataclass

import numpy as np

from shards.geometry import CLUSTER, Padding, batched_padding, floor_padding, size_clusters
from shards.manifest import SPLITS, Manifest, Split


@dataclass(frozen=True, kw_only=True)
class BucketSummary:
    """One width range of one split."""

    split: Split
    bucket: int
    widest: int
    """Upper edge, pixels."""
    shards: int
    samples: int
    pixels: int
    size: int
    """Bytes of its shards."""


@dataclass(frozen=True, kw_only=True)
class PaddingSummary:
    """Padding of one set of samples in batches of `CLUSTER`."""

    floor: Padding
    planned: Padding
    random: Padding


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A dataset at a glance."""

    buckets: tuple[BucketSummary, ...]
    height_quantiles: tuple[int, ...]
    """0, 25, 50, 75 and 100 %, pixels."""
    width_quantiles: tuple[int, ...]
    class_shares: dict[str, float]
    """Share of all pixels, 0 to 1."""
    padding: PaddingSummary
    """Of the training split."""


def padding_summary(manifest: Manifest) -> PaddingSummary:
    """What batches of eight training samples pad: at best, as an epoch's clusters do, and in random order."""
    sizes = manifest.sizes[manifest.rows("train")]
    align = manifest.header.align
    order = size_clusters(sizes, phase=0, rng=np.random.default_rng(0), align=align)
    shuffled = np.random.default_rng(0).permutation(len(sizes))
    return PaddingSummary(
        floor=floor_padding(sizes, align),
        planned=batched_padding(sizes, order, CLUSTER, align),
        random=batched_padding(sizes, shuffled, CLUSTER, align),
    )


def summarise(manifest: Manifest) -> Summary:
    """Count a dataset."""
    header = manifest.header
    pixels = manifest.sizes.astype(np.int64).prod(axis=1)
    shard_of = manifest.members["shard"]
    buckets = []
    for split in SPLITS:
        for bucket, widest in enumerate(header.bucket_edges):
            chosen = [n for n, s in enumerate(header.shards) if s.split == split and s.bucket == bucket]
            if not chosen:
                continue
            buckets.append(
                BucketSummary(
                    split=split,
                    bucket=bucket,
                    widest=widest,
                    shards=len(chosen),
                    samples=sum(header.shards[n].samples for n in chosen),
                    pixels=int(pixels[np.isin(shard_of, chosen)].sum()),
                    size=sum(header.shards[n].size for n in chosen),
                )
            )
    heights, widths = np.quantile(manifest.sizes, (0, 0.25, 0.5, 0.75, 1), axis=0, method="nearest").T
    totals = manifest.class_pixels.sum(axis=0)
    return Summary(
        buckets=tuple(buckets),
        height_quantiles=tuple(int(height) for height in heights),
        width_quantiles=tuple(int(width) for width in widths),
        class_shares={name: float(count / totals.sum()) for name, count in zip(header.classes, totals, strict=True)},
        padding=padding_summary(manifest),
    )
