import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loader.batch import IGNORE, Batch
from loader.plan import PlanConfig
from loader.stream import LoaderConfig, ShardLoader
from shards.errors import DatasetError, SampleError, StateError
from shards.load import load_manifest
from shards.reader import ShardReader

shared_fixture = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def keys_by_step(batches: Iterator[Batch] | ShardLoader) -> dict[int, list[str]]:
    steps: dict[int, list[str]] = {}
    for batch in batches:
        steps.setdefault(batch.step, []).extend(batch.keys)
    return {step: sorted(keys) for step, keys in steps.items()}


def test_every_batch_holds_its_samples_exactly_and_nothing_else(tiny_dataset: Path) -> None:
    loader = ShardLoader(tiny_dataset, plan=PlanConfig(images_per_step=5), config=LoaderConfig(pixel_budget=40_000))
    reader = ShardReader(loader.manifest)
    rows = {key: row for row, key in enumerate(loader.manifest.table["key"].to_pylist())}
    for batch in loader:
        assert batch.images.dtype == batch.masks.dtype == torch.uint8
        for index, key in enumerate(batch.keys):
            sample = reader.read(rows[key])
            height, width = sample.image.shape
            assert batch.sizes[index].tolist() == [height, width]
            assert np.array_equal(batch.images[index, 0, :height, :width], sample.image)
            assert np.array_equal(batch.masks[index, :height, :width], sample.mask)
            outside = ~batch.valid[index, 0]
            assert int(outside.sum()) == outside.numel() - height * width
            assert (batch.images[index, 0][outside] == 0).all()
            assert (batch.masks[index][outside] == IGNORE).all()


def test_an_epoch_delivers_the_split_exactly_once(tiny_dataset: Path) -> None:
    loader = ShardLoader(tiny_dataset, plan=PlanConfig(images_per_step=3))
    delivered = [key for batch in loader for key in batch.keys]
    assert sorted(delivered) == sorted(loader.manifest.text("key", loader.manifest.rows("train")))
    assert (loader.epoch, loader.step) == (1, 0)


def test_steps_end_once_and_know_their_images(tiny_dataset: Path) -> None:
    loader = ShardLoader(tiny_dataset, plan=PlanConfig(images_per_step=5), config=LoaderConfig(pixel_budget=20_000))
    batches = list(loader)
    for step in range(len(loader.plan(0))):
        of_step = [batch for batch in batches if batch.step == step]
        assert [batch.ends_step for batch in of_step] == [False] * (len(of_step) - 1) + [True]
        assert {batch.step_images for batch in of_step} == {sum(len(batch) for batch in of_step)}


@shared_fixture
@given(
    images=st.integers(1, 12),
    epoch=st.integers(0, 3),
    data=st.data(),
    threads=st.integers(1, 4),
    budget=st.integers(1, 200_000),
)
def test_resuming_at_any_step_on_other_hardware_yields_the_same_tail(
    tiny_dataset: Path, images: int, epoch: int, data: st.DataObject, threads: int, budget: int
) -> None:
    plan = PlanConfig(images_per_step=images)
    whole = ShardLoader(tiny_dataset, plan=plan)
    whole.seek(epoch=epoch)
    stop = data.draw(st.integers(0, len(whole.plan(epoch)) - 1))
    expected = keys_by_step(whole)

    stopped = ShardLoader(tiny_dataset, plan=plan)
    stopped.seek(epoch=epoch)
    head: dict[int, list[str]] = {}
    if stop:
        batches = iter(stopped)
        head = keys_by_step(_until_step_ends(batches, stop - 1))
    resumed = ShardLoader(tiny_dataset, plan=plan, config=LoaderConfig(threads=threads, pixel_budget=budget))
    resumed.load_state_dict(stopped.state_dict())
    assert head | keys_by_step(resumed) == expected
    assert resumed.epoch == epoch + 1


def _until_step_ends(batches: Iterator[Batch], last: int) -> Iterator[Batch]:
    for batch in batches:
        yield batch
        if batch.step == last and batch.ends_step:
            return


def test_a_step_that_was_not_wholly_delivered_is_delivered_again(tiny_dataset: Path) -> None:
    loader = ShardLoader(tiny_dataset, plan=PlanConfig(images_per_step=8), config=LoaderConfig(pixel_budget=1))
    batches = iter(loader)
    for _ in range(11):  # one image a batch: the first step, and three of the second's eight
        next(batches)
    assert loader.state_dict()["step"] == 1


def test_the_state_is_small_and_survives_json(tiny_dataset: Path) -> None:
    import json

    loader = ShardLoader(tiny_dataset)
    loader.seek(epoch=2, step=1)
    text = json.dumps(loader.state_dict())
    other = ShardLoader(tiny_dataset)
    other.load_state_dict(json.loads(text))
    assert (other.epoch, other.step, len(text) < 1000) == (2, 1, True)


@pytest.mark.parametrize(
    "other", [PlanConfig(seed=1), PlanConfig(images_per_step=4)], ids=["another seed", "another step"]
)
def test_a_state_of_another_plan_is_refused_with_both_sides(tiny_dataset: Path, other: PlanConfig) -> None:
    saved = ShardLoader(tiny_dataset).state_dict()
    loader = ShardLoader(tiny_dataset, plan=other)
    with pytest.raises(StateError, match=rf"plan '{saved['plan']}', this run has '{loader.fingerprint}'"):
        loader.load_state_dict(saved)


def test_a_batch_stays_what_it_is_as_long_as_it_is_kept(tiny_dataset: Path) -> None:
    loader = ShardLoader(tiny_dataset, plan=PlanConfig(images_per_step=2))
    kept, copies = [], []
    for batch in loader:
        kept.append(batch)
        copies.append((batch.images.clone(), batch.masks.clone()))
    for batch, (images, masks) in zip(kept, copies, strict=True):
        assert torch.equal(batch.images, images)
        assert torch.equal(batch.masks, masks)


def test_a_loop_that_drops_its_batches_uses_three_slabs(tiny_dataset: Path) -> None:
    loader = ShardLoader(tiny_dataset, plan=PlanConfig(images_per_step=1))
    places = {batch.images.data_ptr() for batch in loader}
    assert len(places) <= 3 < len(loader)


def test_leaving_early_leaves_no_thread(tiny_dataset: Path) -> None:
    before = threading.active_count()
    batches = iter(ShardLoader(tiny_dataset, config=LoaderConfig(threads=4, pixel_budget=1)))
    next(batches)
    assert threading.active_count() > before
    del batches
    assert threading.active_count() == before


def test_a_damaged_sample_is_raised_by_name_and_leaves_no_thread(tiny_dataset: Path, tmp_path: Path) -> None:
    manifest = load_manifest(tiny_dataset)
    for path in tiny_dataset.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    row = int(manifest.rows("train")[3])
    shard = tmp_path / ShardReader(manifest).shard_path(row).name
    content = bytearray(shard.read_bytes())
    content[int(manifest.members["image_offset"][row]) + 20] ^= 0x10
    shard.write_bytes(content)
    before = threading.active_count()
    (key,) = manifest.text("key", [row])
    with pytest.raises(SampleError, match=rf"{shard.name}: {key}\.image\.zst at byte"):
        list(ShardLoader(tmp_path))
    assert threading.active_count() == before


def test_the_report_agrees_with_the_plan_to_the_pixel(tiny_dataset: Path) -> None:
    loader = ShardLoader(tiny_dataset, plan=PlanConfig(images_per_step=6), config=LoaderConfig(pixel_budget=30_000))
    planned, batches = loader.planned_padding(), len(loader)
    for _ in loader:
        pass
    report = loader.report()
    assert (report.padding, report.batches) == (planned, batches)
    assert report.images == len(loader.manifest.rows("train"))
    assert 0 <= report.wait_seconds <= report.wall_seconds


def test_an_empty_split_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    from shards.pack import PackConfig, pack
    from shards.synthetic import SyntheticConfig, SyntheticSource

    source = SyntheticSource(SyntheticConfig(count=2, width=(32, 40), height=(32, 40)))
    pack(source, tmp_path / "shards", PackConfig(val_share=0))
    with pytest.raises(DatasetError, match=r"split 'val' is empty; pack with another --val-share"):
        ShardLoader(tmp_path / "shards", split="val")
