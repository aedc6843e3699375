"""Sizes, boxes and buckets: laws, and slow obvious loops to compare with."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from shards.geometry import (
    Padding,
    Sizes,
    batched_padding,
    boxes_of,
    bucket_edges,
    bucket_of,
    floor_padding,
    real_pixels,
    size_clusters,
    size_order,
)

aligns = st.integers(1, 100)
widths = arrays(np.int32, st.integers(1, 50), elements=st.integers(1, 13_000))


def tables(smallest: int = 0) -> st.SearchStrategy[Sizes]:
    return arrays(np.int32, st.tuples(st.integers(smallest, 40), st.just(2)), elements=st.integers(1, 13_000))


@given(tables(), aligns)
def test_a_box_is_the_smallest_aligned_one_that_holds_the_sample(sizes: Sizes, align: int) -> None:
    boxes = boxes_of(sizes, align)
    assert np.all(boxes % align == 0)
    assert np.all(boxes >= sizes)
    assert np.all(boxes - sizes < align)


@given(tables(), aligns)
def test_a_box_is_its_own_box(sizes: Sizes, align: int) -> None:
    boxes = boxes_of(sizes, align)
    assert np.array_equal(boxes_of(boxes.astype(np.int32), align), boxes)


def test_pixels_of_many_large_samples_are_counted_without_overflow() -> None:
    sizes = np.full((10_000, 2), 11_000, np.int32)
    assert real_pixels(sizes) == 10_000 * 11_000**2 > 2**32


def test_the_padding_of_nothing_is_nothing() -> None:
    nothing = np.zeros((0, 2), np.int32)
    assert floor_padding(nothing) == batched_padding(nothing, np.zeros(0, np.int64), 8) == Padding(0, 0)
    assert Padding(0, 0).share == 0


def test_the_share_of_padding_is_counted_once_over_all_pixels() -> None:
    assert (Padding(30, 40) + Padding(60, 160)).share == 1 - 90 / 200


@given(tables(), aligns)
def test_the_floor_pads_each_sample_alone(sizes: Sizes, align: int) -> None:
    real = padded = 0
    for height, width in sizes.tolist():
        real += height * width
        padded += -(-height // align) * align * -(-width // align) * align
    assert floor_padding(sizes, align) == Padding(real, padded)


@given(tables(), aligns, st.integers(1, 9))
def test_a_batch_is_padded_to_its_largest_height_and_width(sizes: Sizes, align: int, batch: int) -> None:
    order = np.random.default_rng(len(sizes)).permutation(len(sizes))
    real = padded = 0
    for start in range(0, len(order), batch):
        members = [sizes[row].tolist() for row in order[start : start + batch]]
        height = -(-max(side[0] for side in members) // align) * align
        width = -(-max(side[1] for side in members) // align) * align
        real += sum(height * width for height, width in members)
        padded += len(members) * height * width
    assert batched_padding(sizes, order, batch, align) == Padding(real, padded)


@given(tables(), st.integers(1, 9))
def test_no_order_pads_less_than_the_floor(sizes: Sizes, batch: int) -> None:
    padding = batched_padding(sizes, np.arange(len(sizes)), batch)
    assert padding.padded >= floor_padding(sizes).padded
    assert padding.real == real_pixels(sizes)


@given(tables())
def test_the_size_order_is_a_snake_through_the_boxes(sizes: Sizes) -> None:
    order = size_order(sizes)
    assert sorted(order.tolist()) == list(range(len(sizes)))
    boxes = (boxes_of(sizes) // 32)[order]
    assert np.all(np.diff(boxes[:, 0]) >= 0)
    for height in np.unique(boxes[:, 0]):
        there = boxes[boxes[:, 0] == height, 1]
        assert np.all(np.diff(there) >= 0 if height % 2 == 0 else np.diff(there) <= 0)


@given(tables())
def test_samples_of_one_box_keep_the_order_they_came_in(sizes: Sizes) -> None:
    order = size_order(sizes)
    boxes = boxes_of(sizes)
    for one, other in pairwise(order):
        assert np.any(boxes[one] != boxes[other]) or one < other


@given(tables(), st.integers(1, 8), st.integers(1, 5), st.integers(0, 2**32))
def test_clusters_hold_every_row_exactly_once(sizes: Sizes, cluster: int, clusters_a_pool: int, seed: int) -> None:
    pool, rng = cluster * clusters_a_pool, np.random.default_rng(seed)
    rows = size_clusters(sizes, pool=pool, cluster=cluster, phase=seed, rng=rng)
    assert sorted(rows.tolist()) == list(range(len(sizes)))


def test_clusters_of_few_kinds_of_boxes_hold_one_kind_each() -> None:
    kinds = np.repeat(np.array([[32, 64], [64, 64], [64, 320]], np.int32), 80, axis=0)
    rows = size_clusters(kinds, pool=240, cluster=8, phase=3, rng=np.random.default_rng(0))
    mixed = [len(np.unique(kinds[rows[start : start + 8]], axis=0)) > 1 for start in range(0, 240, 8)]
    # each of the two borders between kinds is in at most one cluster, and one more is spent on moving the cuts
    assert sum(mixed) <= 3


@given(widths, st.integers(1, 12))
def test_every_width_lies_in_the_first_bucket_that_holds_it(given_widths: NDArray[np.int32], buckets: int) -> None:
    edges = bucket_edges(given_widths, buckets)
    assert 1 <= len(edges) <= buckets
    assert list(edges) == sorted(set(edges))
    assert all(edge % 32 == 0 for edge in edges)
    for width, bucket in zip(given_widths.tolist(), bucket_of(given_widths, edges).tolist(), strict=True):
        assert width <= edges[bucket]
        assert bucket == 0 or width > edges[bucket - 1]


@given(widths)
def test_one_bucket_ends_at_the_widest_box(given_widths: NDArray[np.int32]) -> None:
    assert bucket_edges(given_widths, 1) == (-(-int(given_widths.max()) // 32) * 32,)


def test_buckets_of_even_widths_hold_equally_many() -> None:
    widths = np.arange(32, 32 * 801, 32, dtype=np.int32)  # 800 of them, each its own box
    counts = np.bincount(bucket_of(widths, bucket_edges(widths, 8)))
    assert len(counts) == 8
    assert np.all(np.abs(counts - 100) <= 1)
