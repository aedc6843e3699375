"""From a row to pixels: in place, from many threads, and never from bytes that are not there."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shards.errors import SampleError
from shards.load import load_manifest
from shards.reader import ShardReader


@pytest.fixture
def copy(tiny_dataset: Path, tmp_path: Path) -> Path:
    """A dataset to damage."""
    return Path(shutil.copytree(tiny_dataset, tmp_path / "copy"))


def test_a_sample_is_decoded_into_its_place_and_nothing_around_it(tiny_dataset: Path) -> None:
    reader = ShardReader(load_manifest(tiny_dataset))
    sample = reader.read(3)
    height, width = sample.image.shape
    slabs = np.full((2, height + 5, width + 7), 77, np.uint8)
    places = slabs[:, 2 : 2 + height, 3 : 3 + width]
    read = reader.read_into(3, places[0], places[1])
    assert np.array_equal(places[0], sample.image)
    assert np.array_equal(places[1], sample.mask)
    around = np.ones(slabs.shape, bool)
    around[:, 2 : 2 + height, 3 : 3 + width] = False
    assert np.all(slabs[around] == 77)
    members = reader.manifest.members
    assert read == members["mask_offset"][3] + members["mask_bytes"][3] - members["image_offset"][3]


def test_a_sample_is_an_array_of_its_own(tiny_dataset: Path) -> None:
    reader = ShardReader(load_manifest(tiny_dataset))
    first = reader.read(0)
    kept = first.image.copy()
    for row in range(1, 10):
        reader.read(row)
    assert np.array_equal(first.image, kept)


def test_threads_read_what_one_reads(tiny_dataset: Path) -> None:
    reader = ShardReader(load_manifest(tiny_dataset))
    rows = np.random.default_rng(0).permutation(np.tile(np.arange(len(reader.manifest)), 5)).tolist()
    alone = [reader.read(row) for row in range(len(reader.manifest))]
    with ThreadPoolExecutor(4) as threads:
        for row, sample in zip(rows, threads.map(reader.read, rows), strict=True):
            assert sample.key == alone[row].key
            assert np.array_equal(sample.image, alone[row].image)
            assert np.array_equal(sample.mask, alone[row].mask)


def test_a_missing_shard_is_named_with_the_sample_that_was_asked_for(copy: Path) -> None:
    reader = ShardReader(load_manifest(copy))
    shard = reader.shard_path(0)
    shard.unlink()
    (key,) = reader.manifest.text("key", [0])
    with pytest.raises(SampleError) as caught:
        reader.read(0)
    assert str(caught.value) == (
        f"{shard}: {key}.image at byte 512 cannot be read (No such file or directory); "
        f"copy the shard again, then run `pack-shards verify {copy}`"
    )


def test_a_directory_in_a_shard_s_place_cannot_be_read(copy: Path) -> None:
    reader = ShardReader(load_manifest(copy))
    reader.shard_path(0).unlink()
    reader.shard_path(0).mkdir()
    with pytest.raises(SampleError, match="cannot be read"):
        reader.read(0)


def test_a_shard_cut_anywhere_gives_an_error_or_the_true_pixels(copy: Path) -> None:
    reader = ShardReader(load_manifest(copy))
    path = reader.shard_path(0)
    whole, truth = path.read_bytes(), reader.read(0)
    end = int(reader.manifest.members["mask_offset"][0] + reader.manifest.members["mask_bytes"][0])
    for length in np.linspace(0, end + 20, 60).astype(int).tolist():
        path.write_bytes(whole[:length])
        if length < end:
            with pytest.raises(SampleError, match="the shard is truncated"):
                reader.read(0)
        else:
            assert np.array_equal(reader.read(0).image, truth.image)


def test_a_damaged_byte_anywhere_in_a_sample_gives_an_error_or_the_true_pixels(copy: Path) -> None:
    reader = ShardReader(load_manifest(copy))
    path = reader.shard_path(0)
    whole, truth = path.read_bytes(), reader.read(0)
    offset = int(reader.manifest.members["image_offset"][0])
    end = int(reader.manifest.members["mask_offset"][0] + reader.manifest.members["mask_bytes"][0])
    refused = 0
    for at in range(offset, end, 5):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        try:
            sample = reader.read(0)
        except SampleError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
        else:
            assert np.array_equal(sample.image, truth.image)
            assert np.array_equal(sample.mask, truth.mask)
    assert refused > 100


def test_a_dataset_is_found_through_a_link(tiny_dataset: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tiny_dataset)
    assert ShardReader(load_manifest(str(link))).read(0).key == ShardReader(load_manifest(tiny_dataset)).read(0).key
