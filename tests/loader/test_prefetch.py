from pathlib import Path

import pytest
import torch

from loader.batch import BatchSource
from loader.plan import PlanConfig
from loader.stream import LoaderConfig, ShardLoader

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def loader_on(device: str, dataset: Path) -> ShardLoader:
    plan, config = PlanConfig(images_per_step=4), LoaderConfig(pixel_budget=20_000, threads=4)
    return ShardLoader(dataset, plan=plan, config=config, device=device)


def test_a_shard_loader_is_a_batch_source(tiny_dataset: Path) -> None:
    source: BatchSource = loader_on("cpu", tiny_dataset)  # held by the type checker
    assert len(source) == len(list(source)) == source.report().batches


@cuda
def test_batches_on_the_device_are_those_on_the_host(tiny_dataset: Path) -> None:
    sizes = {}
    for device in ("cpu", "cuda"):
        sizes[device] = {
            key: (batch.images[index].cpu(), batch.sizes[index].cpu())
            for batch in loader_on(device, tiny_dataset)
            for index, key in enumerate(batch.keys)
        }
    assert sizes["cpu"].keys() == sizes["cuda"].keys()
    for key, (image, size) in sizes["cpu"].items():
        height, width = size.tolist()
        assert torch.equal(sizes["cuda"][key][1], size)
        assert torch.equal(sizes["cuda"][key][0][:, :height, :width], image[:, :height, :width])


@cuda
def test_a_batch_that_is_kept_survives_leaving_early_and_starting_again(tiny_dataset: Path) -> None:
    loader = loader_on("cuda", tiny_dataset)
    kept = next(iter(loader))
    expected = next(iter(loader_on("cpu", tiny_dataset)))
    for _ in loader:
        pass
    assert torch.equal(kept.masks.cpu(), expected.masks)
