"""The padding is invisible and accumulation is exact, as properties of the whole network."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from loader.batch import IGNORE, valid_pixels
from loader.plan import split_step
from train.losses import Loss, loss_named
from train.model import ModelConfig, VeerNet, build_model

LOSSES = {name: loss_named(name, alpha=0.3, beta=0.7, positive_weight=10) for name in ("tversky", "weighted_bce")}
SIZES = st.lists(st.tuples(st.integers(1, 70), st.integers(1, 100)), min_size=1, max_size=5)
few = settings(deadline=None, max_examples=10)

Sample = tuple[Tensor, Tensor]


def small_model(outputs: int, dtype: torch.dtype) -> VeerNet:
    return build_model(ModelConfig(outputs=outputs, stem=8, stages=(16, 16, 32, 32, 32)), seed=3).to(dtype)


def samples_of(sizes: Sequence[tuple[int, int]], classes: int) -> list[Sample]:
    rng = np.random.default_rng(len(sizes))
    return [
        (
            torch.from_numpy(rng.integers(0, 256, size, np.uint8)),
            torch.from_numpy(rng.integers(0, classes, size, np.uint8)),
        )
        for size in sizes
    ]


def padded(samples: Sequence[Sample], box: tuple[int, int], filler: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Images, masks and sizes of one micro-batch."""
    images = torch.full((len(samples), 1, *box), filler, dtype=torch.uint8)
    masks = torch.full((len(samples), *box), IGNORE, dtype=torch.uint8)
    for index, (image, mask) in enumerate(samples):
        images[index, 0, : image.shape[0], : image.shape[1]] = image
        masks[index, : mask.shape[0], : mask.shape[1]] = mask
    return images, masks, torch.tensor([image.shape for image, _ in samples], dtype=torch.int32)


def step_gradient(model: VeerNet, criterion: Loss, samples: Sequence[Sample], budget: int, filler: int) -> Tensor:
    """The gradient of one step, cut as the loader cuts it under `budget`, as one vector."""
    model.zero_grad()
    sizes = np.array([image.shape for image, _ in samples], np.int32)
    (micro_batches,) = split_step(np.arange(len(samples)), sizes, pixel_budget=budget)
    for micro_batch in micro_batches:
        images, masks, true_sizes = padded([samples[row] for row in micro_batch.rows], micro_batch.box, filler)
        losses = criterion(model(images, true_sizes), masks, valid_pixels(true_sizes, *micro_batch.box))
        (losses.sum() / len(samples)).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=str)
@pytest.mark.parametrize(("name", "outputs"), [("tversky", 3), ("weighted_bce", 1)])
@given(sizes=SIZES, budget=st.integers(1, 40_000), filler=st.integers(0, 255))
@few
def test_a_steps_gradient_does_not_depend_on_how_it_is_cut_or_padded(
    dtype: torch.dtype,
    tolerance: float,
    name: str,
    outputs: int,
    sizes: list[tuple[int, int]],
    budget: int,
    filler: int,
) -> None:
    """Any number of images, so the last short step of an epoch is one of the cases."""
    model = small_model(outputs, dtype)
    samples = samples_of(sizes, max(outputs, 2))
    whole = step_gradient(model, LOSSES[name], samples, budget=10**9, filler=0)
    cut = step_gradient(model, LOSSES[name], samples, budget=budget, filler=filler)
    assert relative_error(cut, whole) < tolerance


@given(sizes=SIZES, filler=st.integers(0, 255), extra=st.tuples(st.integers(0, 2), st.integers(0, 3)))
@few
def test_logits_on_real_pixels_are_those_of_the_sample_alone(
    sizes: list[tuple[int, int]], filler: int, extra: tuple[int, int]
) -> None:
    model = small_model(3, torch.float32)
    samples = samples_of(sizes, 3)
    box = tuple(-(-max(size[side] for size in sizes) // 32) * 32 + 32 * extra[side] for side in (0, 1))
    images, _, true_sizes = padded(samples, (box[0], box[1]), filler)
    with torch.no_grad():
        together = model(images, true_sizes)
        for index, sample in enumerate(samples):
            height, width = sample[0].shape
            own_box = (-(-height // 32) * 32, -(-width // 32) * 32)
            image, _, size = padded([sample], own_box)
            alone = model(image, size)[0, :, :height, :width]
            assert relative_error(together[index, :, :height, :width], alone) < 1e-5


@pytest.mark.parametrize(("name", "outputs"), [("tversky", 3), ("tversky", 1), ("weighted_bce", 1)])
@pytest.mark.parametrize("garbage", [1e30, float("inf"), float("nan")], ids=str)
def test_whatever_stands_in_the_padding_changes_no_loss_and_no_gradient(
    name: str, outputs: int, garbage: float
) -> None:
    torch.manual_seed(0)
    valid = valid_pixels(torch.tensor([[20, 30], [32, 7]]), 32, 32)
    target = torch.randint(0, max(outputs, 2), (2, 32, 32), dtype=torch.uint8).masked_fill(~valid[:, 0], IGNORE)
    clean = torch.randn(2, outputs, 32, 32, requires_grad=True)
    dirty = clean.detach().masked_fill(~valid, garbage).requires_grad_()
    expected, found = (LOSSES[name](logits, target, valid) for logits in (clean, dirty))
    assert torch.equal(found, expected)
    expected.sum().backward()
    found.sum().backward()
    assert clean.grad is not None
    assert dirty.grad is not None
    assert torch.equal(dirty.grad, clean.grad)
    assert (dirty.grad[~valid.expand_as(dirty)] == 0).all()
