"""Packing against webdataset's own writer, from memory to disk; and how fast synthetic logs are drawn."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import webdataset
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import Report
from benchmarks.race import race
from benchmarks.scale import MemorySource, Scale, logs
from shards.codecs import CodecName
from shards.pack import PackConfig, pack
from shards.synthetic import Noise


@pytest.mark.parametrize("noise", ["clean", "noisy"])
def bench_pack(benchmark: BenchmarkFixture, report: Report, scale: Scale, tmp_path: Path, noise: Noise) -> None:
    source = MemorySource(logs(scale.packed, scale.width, noise))
    contenders: dict[str, Callable[[], None]] = {
        "wellfeed: pack, zstd": partial(_pack, source, tmp_path / "zstd", "zstd"),
        "wellfeed: pack, PNG": partial(_pack, source, tmp_path / "png", "png"),
        "webdataset: ShardWriter, PNG": partial(_write_webdataset, source, tmp_path / "webdataset"),
    }
    result = race(benchmark, contenders, rounds=min(scale.rounds, 3))
    for (name, _), folder in zip(contenders.items(), ("zstd", "png", "webdataset"), strict=True):
        size = sum(path.stat().st_size for path in (tmp_path / folder).iterdir())
        report(
            f"packing {noise} logs, {source.megapixels / scale.packed:.1f} MP each on average",
            contender=name,
            MP_per_s=f"{source.megapixels / result.median(name):,.0f}",
            bytes_per_pixel=f"{size / source.megapixels / 1e6:.2f}",
            ours_is=f"{result.times_faster(next(iter(contenders)), than=name):.1f}x",
            goal="5x" if name.startswith("webdataset") else "",
        )


@pytest.mark.parametrize("noise", ["clean", "mid", "noisy"])
def bench_synthetic(benchmark: BenchmarkFixture, report: Report, scale: Scale, noise: Noise) -> None:
    source = logs(scale.packed, scale.width, noise)
    infos = source.scan()
    benchmark(lambda: [source.load(info) for info in infos])
    assert benchmark.stats is not None
    speed = sum(info.pixels for info in infos) / 1e6 / benchmark.stats.stats.median
    report("drawing synthetic logs, one core", noise=noise, MP_per_s=f"{speed:,.0f}", goal="60")


def _pack(source: MemorySource, out: Path, codec: CodecName) -> None:
    shutil.rmtree(out, ignore_errors=True)
    pack(source, out, PackConfig(codec=codec))


def _write_webdataset(source: MemorySource, out: Path) -> None:
    """As its documentation shows: arrays in, the extension chooses the encoder."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with webdataset.ShardWriter(str(out / "%06d.tar"), verbose=0) as writer:
        for info in source.scan():
            sample = source.load(info)
            facts = {"height": info.height, "width": info.width}
            writer.write({"__key__": info.key, "image.png": sample.image, "mask.png": sample.mask, "json": facts})
