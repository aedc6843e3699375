"""An unmodified webdataset reads the shards of either codec, and the pixels are equal."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import webdataset

from shards.errors import DatasetError
from shards.load import load_manifest
from shards.pack import PackConfig, pack
from shards.sample import LogSample
from shards.synthetic import SyntheticSource
from shards.webdataset import decode_sample
from tests.conftest import TINY


def urls(root: Path) -> list[str]:
    return [str(root / shard.name) for shard in load_manifest(root).header.shards]


@pytest.fixture(scope="module")
def truth() -> dict[str, LogSample]:
    source = SyntheticSource(TINY)
    return {info.key: source.load(info) for info in source.scan()}


@pytest.fixture(scope="module")
def png_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("png") / "dataset"
    pack(SyntheticSource(TINY), out, PackConfig(codec="png"))
    return out


@pytest.mark.parametrize("codec", ["zstd", "png"])
def test_webdataset_with_our_decoder_yields_equal_pixels(
    codec: Literal["zstd", "png"], tiny_dataset: Path, png_dataset: Path, truth: dict[str, LogSample]
) -> None:
    root = tiny_dataset if codec == "zstd" else png_dataset
    samples = list(webdataset.WebDataset(urls(root), shardshuffle=False).map(decode_sample))
    assert sorted(sample["__key__"] for sample in samples) == sorted(truth)
    for sample in samples:
        drawn = truth[sample["__key__"]]
        assert np.array_equal(sample["image"], drawn.image)
        assert np.array_equal(sample["mask"], drawn.mask)
        assert sample["json"]["group"] == drawn.group
        assert sample["json"]["dataset"]["classes"] == ["background", "curve 1", "curve 2"]


def test_webdataset_alone_decodes_png_shards(png_dataset: Path, truth: dict[str, LogSample]) -> None:
    samples = list(webdataset.WebDataset(urls(png_dataset), shardshuffle=False).decode("l8"))
    assert sorted(sample["__key__"] for sample in samples) == sorted(truth)
    for sample in samples:
        assert np.array_equal(sample["image.png"], truth[sample["__key__"]].image)
        assert np.array_equal(sample["mask.png"], truth[sample["__key__"]].mask)
        assert sample["json"]["key"] == sample["__key__"]


def test_what_is_not_ours_passes_through(tiny_dataset: Path) -> None:
    sample = next(iter(webdataset.WebDataset(urls(tiny_dataset), shardshuffle=False)))
    decoded = decode_sample(sample | {"note.txt": b"mine"})
    assert decoded["note.txt"] == b"mine"
    assert {"__key__", "__url__", "image", "mask", "json", "note.txt"} <= decoded.keys()
    assert not any(key.endswith(".zst") for key in decoded)


def test_a_damaged_payload_is_refused(tiny_dataset: Path) -> None:
    sample = next(iter(webdataset.WebDataset(urls(tiny_dataset), shardshuffle=False)))
    payload = bytearray(sample["image.zst"])
    payload[-1] ^= 1
    with pytest.raises(DatasetError, match="is damaged"):
        decode_sample(sample | {"image.zst": bytes(payload)})
