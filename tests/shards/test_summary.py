"""What `inspect` tells, counted again from the samples themselves."""

from pathlib import Path

import numpy as np
import pytest

from shards.geometry import floor_padding
from shards.load import load_manifest
from shards.manifest import Manifest
from shards.pack import PackConfig, pack
from shards.summary import padding_summary, summarise
from shards.synthetic import SyntheticConfig, SyntheticSource
from tests.conftest import TINY
from tests.shards.hand_made import HandMadeSource, log


@pytest.fixture
def manifest(tiny_dataset: Path) -> Manifest:
    return load_manifest(tiny_dataset)


def test_buckets_add_up_to_the_dataset(manifest: Manifest, tiny_dataset: Path) -> None:
    summary = summarise(manifest)
    infos = SyntheticSource(TINY).scan()
    assert sum(entry.samples for entry in summary.buckets) == len(infos)
    assert sum(entry.pixels for entry in summary.buckets) == sum(info.pixels for info in infos)
    assert sum(entry.shards for entry in summary.buckets) == len(list(tiny_dataset.glob("*.tar")))
    assert sum(entry.size for entry in summary.buckets) == sum(p.stat().st_size for p in tiny_dataset.glob("*.tar"))


def test_a_bucket_counts_the_samples_of_its_widths(manifest: Manifest) -> None:
    lower = 0
    entries = summarise(manifest).buckets
    widths = [info.width for info in SyntheticSource(TINY).scan()]
    for widest in manifest.header.bucket_edges:
        counted = sum(entry.samples for entry in entries if entry.widest == widest)
        assert counted == sum(lower < width <= widest for width in widths)
        lower = widest


def test_quantiles_are_sizes_of_samples(manifest: Manifest) -> None:
    summary = summarise(manifest)
    infos = SyntheticSource(TINY).scan()
    for quantiles, sides in (
        (summary.height_quantiles, sorted(info.height for info in infos)),
        (summary.width_quantiles, sorted(info.width for info in infos)),
    ):
        assert (quantiles[0], quantiles[-1]) == (sides[0], sides[-1])
        assert set(quantiles) <= set(sides)
        assert list(quantiles) == sorted(quantiles)
        assert sides[18] <= quantiles[2] <= sides[21]  # the middle of forty


def test_class_shares_are_of_all_pixels(manifest: Manifest) -> None:
    source = SyntheticSource(TINY)
    pixels = np.concatenate([source.load(info).mask.ravel() for info in source.scan()])
    shares = summarise(manifest).class_shares
    assert list(shares) == ["background", "curve 1", "curve 2"]
    assert list(shares.values()) == pytest.approx([np.mean(pixels == n) for n in range(3)])
    assert sum(shares.values()) == pytest.approx(1)


def test_the_padding_is_of_the_training_split(manifest: Manifest) -> None:
    train = manifest.sizes[manifest.rows("train")]
    padding = padding_summary(manifest)
    assert padding.floor == floor_padding(train)
    assert padding.floor.real == padding.planned.real == padding.random.real


def test_planning_pads_less_than_chance_and_no_less_than_the_floor(tmp_path: Path) -> None:
    logs = SyntheticConfig(count=200, width=(32, 400), height=(33, 128), noise="clean")
    padding = padding_summary(pack(SyntheticSource(logs), tmp_path / "set", PackConfig(val_share=0)))
    assert padding.floor.share <= padding.planned.share < padding.random.share


def test_a_dataset_of_one_sample_is_summarised(tmp_path: Path) -> None:
    manifest = pack(HandMadeSource([log("only", height=8, width=16)]), tmp_path / "set", PackConfig())
    summary = summarise(manifest)
    assert summary.height_quantiles == (8,) * 5
    assert summary.width_quantiles == (16,) * 5
    assert summary.padding.floor.share == 1 - 8 * 16 / (32 * 32)
