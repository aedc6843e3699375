"""Synthetic logs: what a sample depends on, and that the mask is where the trace is."""

import multiprocessing
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest

from shards.errors import ConfigError
from shards.sample import LogInfo, LogSample, Pixels, is_key
from shards.synthetic import Noise, SyntheticConfig, SyntheticSource

NOISES: tuple[Noise, ...] = get_args(Noise)
TENTH = {"width": (320, 1280), "height": (48, 64)}


def tenth(count: int = 8, *, noise: Noise = "mid", seed: int = 0) -> SyntheticSource:
    return SyntheticSource(
        SyntheticConfig(count=count, noise=noise, seed=seed, width=TENTH["width"], height=TENTH["height"])
    )


def full(count: int, *, noise: Noise = "clean") -> SyntheticSource:
    return SyntheticSource(SyntheticConfig(count=count, noise=noise))


def logs(source: SyntheticSource) -> list[LogSample]:
    return [source.load(info) for info in source.scan()]


def assert_same(left: Sequence[LogSample], right: Sequence[LogSample]) -> None:
    assert [sample.key for sample in left] == [sample.key for sample in right]
    for one, other in zip(left, right, strict=True):
        assert np.array_equal(one.image, other.image)
        assert np.array_equal(one.mask, other.mask)


def beside(ids: Pixels) -> bool:
    """Whether a pixel of class 1 has a neighbour of class 2, above, below, left or right."""
    pairs = ((ids[1:], ids[:-1]), (ids[:, 1:], ids[:, :-1]))
    return any(bool(np.any((a == 1) & (b == 2) | (a == 2) & (b == 1))) for a, b in pairs)


@pytest.mark.parametrize("noise", NOISES)
def test_a_sample_depends_on_seed_and_index_alone(noise: Noise) -> None:
    many, few = tenth(9, noise=noise), tenth(6, noise=noise)
    assert list(many.scan()[:6]) == list(few.scan())
    backwards = [many.load(info) for info in reversed(many.scan())]
    assert_same(list(reversed(backwards))[:6], logs(few))


def test_another_seed_or_index_is_another_log() -> None:
    drawn = [sample.image.tobytes() for seed in (0, 1) for sample in logs(tenth(4, seed=seed))]
    assert len(set(drawn)) == len(drawn)


def test_threads_and_processes_draw_the_same_logs() -> None:
    source = tenth(6, noise="noisy")
    alone = logs(source)
    with ThreadPoolExecutor(4) as threads:
        assert_same(list(threads.map(source.load, source.scan() * 3)), alone * 3)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        assert_same(list(processes.map(source.load, source.scan())), alone)


def test_sizes_fill_the_asked_range_inclusive() -> None:
    infos = SyntheticSource(SyntheticConfig(count=2000, width=(100, 109), height=(7, 9))).scan()
    widths, counts = np.unique([info.width for info in infos], return_counts=True)
    assert widths.tolist() == list(range(100, 110))
    # 200 of each are expected; a binomial count strays 5 standard deviations (67) once in a million
    assert np.all(np.abs(counts - 200) < 67)
    assert {info.height for info in infos} == {7, 8, 9}


def test_width_and_height_are_independent() -> None:
    infos = SyntheticSource(SyntheticConfig(count=4000)).scan()
    correlation = np.corrcoef([info.width for info in infos], [info.height for info in infos])[0, 1]
    assert abs(correlation) < 5 / np.sqrt(4000)


def test_a_pixel_array_is_as_large_as_the_scan_said() -> None:
    source = tenth()
    for info, sample in zip(source.scan(), logs(source), strict=True):
        assert sample.image.shape == sample.mask.shape == (info.height, info.width)
        assert sample.image.dtype == sample.mask.dtype == np.uint8
        assert (sample.key, sample.group) == (info.key, info.group)


def test_keys_are_unique_and_valid_and_four_logs_share_a_well() -> None:
    infos = tenth(41).scan()
    assert len({info.key for info in infos}) == 41
    assert all(is_key(info.key) for info in infos)
    assert all((a.group == b.group) == (i % 4 != 3) for i, (a, b) in enumerate(pairwise(infos)))


@pytest.mark.parametrize("classes", [2, 3])
def test_masks_hold_exactly_the_named_classes(classes: int) -> None:
    source = SyntheticSource(SyntheticConfig(count=6, classes=classes, **TENTH))  # type: ignore[arg-type]
    assert len(source.classes) == classes
    for sample in logs(source):
        assert np.unique(sample.mask).tolist() == list(range(classes))


def test_a_full_size_log_is_about_97_percent_background() -> None:
    shares = [float(np.mean(sample.mask == 0)) for sample in logs(full(6))]
    assert all(0.96 <= share <= 0.985 for share in shares)
    assert abs(np.mean(shares) - 0.97) < 0.005


def test_a_tenth_of_the_size_is_not_mostly_trace() -> None:
    shares = [float(np.mean(sample.mask == 0)) for sample in logs(tenth(40))]
    assert all(0.94 <= share <= 0.98 for share in shares)
    assert 0.95 <= np.mean(shares) <= 0.97


@pytest.mark.parametrize("noise", NOISES)
def test_every_column_holds_curve_1(noise: Noise) -> None:
    for sample in logs(tenth(noise=noise)):
        assert np.all(np.any(sample.mask == 1, axis=0))


def test_ink_is_where_the_mask_says_and_curve_1_is_darker() -> None:
    for sample in logs(full(2)) + logs(tenth(noise="clean")):
        paper = np.median(sample.image)
        first, second = sample.image[sample.mask == 1], sample.image[sample.mask == 2]
        assert paper > 230
        assert first.max() < 60 < second.max() < 120
        assert second.min() >= 60  # a label, at the darkest
        assert np.all(sample.image[sample.mask == 0] >= 60)


@pytest.mark.parametrize("noise", ["mid", "noisy"])
def test_a_gap_in_the_ink_is_no_gap_in_the_mask(noise: Noise) -> None:
    gaps = 0
    for clean, damaged in zip(logs(tenth(20, noise="clean")), logs(tenth(20, noise=noise)), strict=True):
        # the same log, slipped up and down in the scanner: each column keeps its trace, whatever became of the ink
        assert np.array_equal((damaged.mask == 1).sum(axis=0), (clean.mask == 1).sum(axis=0))
        darkest = np.where(damaged.mask == 1, damaged.image, 255).min(axis=0)
        gaps += int(np.sum(darkest > 150))
    assert gaps > 20


def test_neighbouring_columns_of_a_trace_touch() -> None:
    for sample in logs(tenth(noise="clean")):
        trace = sample.mask == 1
        rows = np.flatnonzero(trace.any(axis=1))
        span = trace[rows[0] : rows[-1] + 1]
        reach = (
            span | np.roll(span, 1, axis=0) | np.roll(span, -1, axis=0)
        )  # rolled, as a wrap goes on at the other edge
        assert np.all((reach[:, 1:] & span[:, :-1]).any(axis=0))


def test_curves_cross() -> None:
    assert all(beside(sample.mask) for sample in logs(full(4)))


def test_a_curve_that_leaves_its_track_comes_back_at_the_other_edge() -> None:
    for sample in logs(full(4)):  # clean: no skew, so the edges are two rows
        trace = sample.mask == 1
        rows = np.flatnonzero(trace.any(axis=1))
        assert rows[-1] - rows[0] > 0.75 * len(trace)
        assert np.any(trace[rows[0]] & trace[rows[-1]])


@pytest.mark.parametrize("noise", NOISES)
def test_tones_never_wrap_around_white_or_black(noise: Noise) -> None:
    for sample in logs(tenth(16, noise=noise)):
        assert sample.image.min() >= 10
        assert sample.image.max() <= 252


def test_worse_scans_compress_worse() -> None:
    stored = [
        sum(len(zlib.compress(sample.image.tobytes(), 1)) for sample in logs(tenth(noise=noise))) for noise in NOISES
    ]
    assert stored[0] * 2 < stored[1]
    assert stored[1] < stored[2]


def test_bare_paper_carries_grain_that_does_not_repeat() -> None:
    for sample in logs(full(2, noise="mid")):
        rows = sample.image[:3].astype(float)  # within the margin, whatever the skew
        assert np.all(np.abs(rows.std(axis=1) - 2) < 0.2)
        strays = np.corrcoef(rows)[np.triu_indices(3, 1)]
        assert np.all(np.abs(strays) < 5 / np.sqrt(rows.shape[1]))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (2, 3), (32, 32), (39, 50), (40, 50), (100, 20)])
def test_tiny_logs_are_drawn(noise: Noise, size: tuple[int, int]) -> None:
    height, width = size
    source = SyntheticSource(SyntheticConfig(count=5, noise=noise, width=(width, width), height=(height, height)))
    for sample in logs(source):
        assert sample.image.shape == sample.mask.shape == size
        assert np.all(np.any(sample.mask == 1, axis=0))


def test_a_config_lists_every_problem_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        SyntheticConfig(count=0, classes=4, width=(9, 8), height=(0, 5), seed=-1, noise="loud")  # type: ignore[arg-type]
    message = str(caught.value)
    assert "6 problems" in message
    for setting in ("count", "classes", "width", "height", "seed", "noise"):
        assert f"\n  {setting} is" in message


def test_a_log_too_large_to_pack_is_refused_before_it_is_drawn() -> None:
    with pytest.raises(ConfigError, match=r"640 x 419,431"):
        SyntheticConfig(count=1, width=(1, 2**28 // 640 + 1))


def test_a_log_is_found_by_its_key_alone() -> None:
    source = tenth(3)
    known = source.scan()[2]
    renamed = LogInfo(key=known.key, group="elsewhere", height=known.height, width=known.width, source="by hand")
    assert np.array_equal(source.load(renamed).image, source.load(known).image)
