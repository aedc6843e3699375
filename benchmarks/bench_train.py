"""What planned micro-batches are worth to training on one core: the same network, loss and images, batched anew."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import Report
from benchmarks.race import race
from benchmarks.scale import Scale
from loader.batch import IGNORE, Batch
from loader.stream import LoaderConfig, ShardLoader
from shards.geometry import Padding, boxes_of
from shards.manifest import Manifest
from shards.pack import PackConfig, pack
from shards.reader import ShardReader
from shards.synthetic import SyntheticConfig, SyntheticSource
from train.config import TrainConfig
from train.loop import Trainer, train_epoch


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Two threads wait for each other at every operator once something else runs: six times slower, measured."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def bench_train(benchmark: BenchmarkFixture, report: Report, scale: Scale, tmp_path: Path) -> None:
    tenth = SyntheticConfig(count=scale.trained, width=(320, 1280), height=(48, 64))
    manifest = pack(SyntheticSource(tenth), tmp_path / "shards", PackConfig())
    trainer = Trainer(TrainConfig(shards=manifest.root, out=tmp_path / "run", device="cpu"), manifest)
    plan = trainer.train.plan_config
    in_memory: dict[str, list[Batch]] = {
        "planned micro-batches, from memory": list(ShardLoader(manifest, plan=plan)),
        "one image at a time, from memory": list(ShardLoader(manifest, plan=plan, config=LoaderConfig(pixel_budget=1))),
        "random batches, from memory": list(_random_batches(manifest, plan.images_per_step)),
    }
    ours = "wellfeed: train_epoch, from shards"
    contenders: dict[str, Callable[[], None]] = {ours: partial(_train_epoch, trainer)}
    contenders |= {name: partial(_train, trainer, batches) for name, batches in in_memory.items()}
    for epoch in contenders.values():  # the first pass allocates
        epoch()
    result = race(benchmark, contenders, rounds=scale.rounds)
    for name in contenders:
        batches, delivered = in_memory.get(name, []), trainer.train.report()
        report(
            f"training on one core, a tenth of full size, {plan.images_per_step} images a step",
            contender=name,
            batches_a_step=f"{(len(batches) or delivered.batches) / trainer.steps_per_epoch:.1f}",
            padding=f"{100 * (_padding(batches) if batches else delivered.padding).share:.1f} %",
            steps_per_s=f"{trainer.steps_per_epoch / result.median(name):.2f}",
            ours_is=f"{result.times_faster(ours, than=name):.2f}x",
        )


def _train_epoch(trainer: Trainer) -> None:
    """Epoch 0, each time, through the loader and the loop that `train` runs."""
    trainer.train.seek(epoch=0)
    for _ in train_epoch(trainer):
        pass


def _train(trainer: Trainer, batches: Sequence[Batch]) -> None:
    """The same loop without the loader and the records."""
    for batch in batches:
        losses = trainer.criterion(trainer.model(batch.images, batch.sizes), batch.masks, batch.valid)
        torch.autograd.backward(losses.sum() / batch.step_images)
        if batch.ends_step:
            trainer.update()


def _random_batches(manifest: Manifest, images_per_step: int) -> Iterator[Batch]:
    """Each step one batch of images drawn at random, padded to one box: what a plain DataLoader would give."""
    reader = ShardReader(manifest)
    rows = np.random.default_rng(0).permutation(manifest.rows("train"))
    for step, start in enumerate(range(0, len(rows), images_per_step)):
        samples = [reader.read(int(row)) for row in rows[start : start + images_per_step]]
        sizes = np.array([sample.image.shape for sample in samples], np.int32)
        height, width = (int(side) for side in boxes_of(sizes).max(axis=0))
        images = np.zeros((len(samples), 1, height, width), np.uint8)
        masks = np.full((len(samples), height, width), IGNORE, np.uint8)
        for place, sample in enumerate(samples):
            images[place, 0, : sizes[place, 0], : sizes[place, 1]] = sample.image
            masks[place, : sizes[place, 0], : sizes[place, 1]] = sample.mask
        yield Batch(
            images=torch.from_numpy(images),
            masks=torch.from_numpy(masks),
            sizes=torch.from_numpy(sizes),
            keys=tuple(sample.key for sample in samples),
            step=step,
            step_images=len(samples),
            ends_step=True,
        )


def _padding(batches: Sequence[Batch]) -> Padding:
    real = sum(int(batch.sizes.prod(dim=1).sum()) for batch in batches)
    return Padding(real, sum(batch.images.numel() for batch in batches))
