"""ShardLoader against torch's DataLoader over PNG files, and against a memcpy from RAM, which nothing can beat."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pytest_benchmark.fixture import BenchmarkFixture
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.conftest import Report
from benchmarks.race import race
from benchmarks.scale import MemorySource, Scale, logs
from loader.batch import IGNORE
from loader.collate import pad_and_mask
from loader.stream import LoaderConfig, ShardLoader
from shards.geometry import ALIGN
from shards.load import load_manifest
from shards.pack import PackConfig, pack
from shards.sample import LogSample
from shards.synthetic import Noise

_BATCH = 8  # images of a DataLoader's batch
_PROCESSES = 2  # its workers
_THREADS = 2  # ours, and the memcpy's

Pair = tuple[Tensor, Tensor]
"""Images [N, 1, H, W] and masks [N, H, W] of a batch, uint8."""


@pytest.mark.parametrize("noise", ["clean", "noisy"])
def bench_loader(benchmark: BenchmarkFixture, report: Report, scale: Scale, tmp_path: Path, noise: Noise) -> None:
    source = MemorySource(logs(scale.loaded, scale.width, noise))
    manifest = pack(source, tmp_path / "shards", PackConfig(val_share=0))
    loader = ShardLoader(manifest, config=LoaderConfig(threads=_THREADS))
    png = _png_loader(_write_png(source, tmp_path / "png"))
    recipes = [_Recipe(batch.images.shape[-2:], [source.sample(key) for key in batch.keys]) for batch in loader]
    buffers = [np.zeros(max(recipe.bytes for recipe in recipes), np.uint8) for _ in range(3)]
    contenders: dict[str, Callable[[], Iterable[Pair]]] = {
        "wellfeed: ShardLoader, 2 threads": partial(_ours, loader),
        "torch: DataLoader, PNG, 2 workers": partial(iter, png),
        "memcpy from RAM, 1 thread": partial(_memcpy, recipes, buffers, threads=1),
        "memcpy from RAM, 2 threads": partial(_memcpy, recipes, buffers, threads=_THREADS),
    }
    assert len({_checksum(epoch()) for epoch in contenders.values()}) == 1, "not the same pixels"
    passes = {name: partial(_consume, epoch) for name, epoch in contenders.items()}
    result = race(benchmark, passes, rounds=scale.rounds)
    ours = next(iter(contenders))
    for name in contenders:
        speed = scale.loaded / result.median(name)
        report(
            f"loader, {noise} logs, {source.megapixels / scale.loaded:.1f} MP each on average",
            contender=name,
            logs_per_s=f"{speed:,.1f}",
            MP_per_s=f"{speed * source.megapixels / scale.loaded:,.0f}",
            ours_is=f"{result.times_faster(ours, than=name):.2f}x",
            goal={"torch": "15x", "memcp": "0.75x" if noise == "clean" else "0.40x"}.get(name[:5], ""),
        )


def bench_first_batch(benchmark: BenchmarkFixture, report: Report, scale: Scale, tmp_path: Path) -> None:
    root = pack(logs(scale.loaded, scale.width, "mid"), tmp_path / "shards", PackConfig(val_share=0)).root

    def first_batch() -> None:
        next(iter(ShardLoader(load_manifest(root))))

    benchmark(first_batch)
    assert benchmark.stats is not None
    milliseconds = 1000 * benchmark.stats.stats.median
    report("first batch", what="from a directory to the first batch", median=f"{milliseconds:,.0f} ms", goal="300 ms")


def _consume(epoch: Callable[[], Iterable[Pair]]) -> None:
    """Take an epoch as a training loop does: hold a batch, touch each image, drop it for the next."""
    for images, masks in epoch():
        int(images[:, 0, 0, 0].sum()), int(masks[:, 0, 0].sum())


def _checksum(epoch: Iterable[Pair]) -> tuple[int, int]:
    """The same for the same samples, however they are batched: padding adds nothing."""
    total_image = total_mask = 0
    for images, masks in epoch:
        total_image += int(images.sum())
        total_mask += int(torch.where(masks == IGNORE, 0, masks).sum())
    return total_image, total_mask


def _ours(loader: ShardLoader) -> Iterator[Pair]:
    """Epoch 0, each time."""
    loader.seek(epoch=0)
    return ((batch.images, batch.masks) for batch in loader)


def _write_png(source: MemorySource, folder: Path) -> Path:
    """At Pillow's own level, 6: on grainy scans it is read a fifth faster than level 1."""
    for part in ("image", "mask"):
        (folder / part).mkdir(parents=True)
        for info in source.scan():
            Image.fromarray(getattr(source.load(info), part)).save(folder / part / f"{info.key}.png")
    return folder


class _PngFolder(Dataset[Pair]):
    """What torch's data tutorial would have: a map-style dataset over files."""

    def __init__(self, folder: Path) -> None:
        self.images = sorted((folder / "image").iterdir())
        self.masks = sorted((folder / "mask").iterdir())

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Pair:
        image, mask = (torch.from_numpy(_pixels(paths[index])) for paths in (self.images, self.masks))
        return image, mask


def _pixels(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.array(image)


def _png_loader(folder: Path) -> DataLoader[Pair]:
    """At its best: workers that live on between epochs, each with two batches ready."""
    return DataLoader(
        _PngFolder(folder),
        batch_size=_BATCH,
        shuffle=True,
        num_workers=_PROCESSES,
        collate_fn=_pad_to_common_box,
        persistent_workers=True,
        prefetch_factor=2,
    )


def _pad_to_common_box(pairs: Sequence[Pair]) -> Pair:
    height, width = (-(-max(image.shape[side] for image, _ in pairs) // ALIGN) * ALIGN for side in (0, 1))
    images = torch.zeros(len(pairs), 1, height, width, dtype=torch.uint8)
    masks = torch.full((len(pairs), height, width), IGNORE, dtype=torch.uint8)
    for place, (image, mask) in enumerate(pairs):
        images[place, 0, : image.shape[0], : image.shape[1]] = image
        masks[place, : mask.shape[0], : mask.shape[1]] = mask
    return images, masks


@dataclass(frozen=True)
class _Recipe:
    """One of our batches: what goes into it."""

    box: tuple[int, ...]
    samples: Sequence[LogSample]

    @property
    def bytes(self) -> int:
        return 2 * len(self.samples) * prod(self.box)


def _memcpy(recipes: Sequence[_Recipe], buffers: Sequence[NDArray[np.uint8]], *, threads: int) -> Iterator[Pair]:
    """Fill our batches from samples in memory, in buffers used in turn: one is held, the others being filled."""
    filling: deque[Future[Pair]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for recipe, buffer in zip(recipes, cycle(buffers), strict=False):
            filling.append(pool.submit(_fill, recipe, buffer))
            if len(filling) == len(buffers):
                yield filling.popleft().result()
        while filling:
            yield filling.popleft().result()


def _fill(recipe: _Recipe, buffer: NDArray[np.uint8]) -> Pair:
    room = buffer[: recipe.bytes].reshape(2, len(recipe.samples), *recipe.box)
    for sample, image, mask in zip(recipe.samples, *room, strict=True):
        height, width = sample.image.shape
        pad_and_mask(image, mask, height, width)
        image[:height, :width], mask[:height, :width] = sample.image, sample.mask
    images, masks = torch.from_numpy(room)
    return images[:, None], masks
