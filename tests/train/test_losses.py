import math

import pytest
import torch
import torch.nn.functional as F

from loader.batch import IGNORE
from train.losses import LossName, loss_named, tversky, weighted_bce


def all_valid(target: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(target, dtype=torch.bool)[:, None]


def test_tversky_of_hard_predictions_is_the_formula() -> None:
    """4 hits, 2 misses, 3 false alarms: (4 + 1) / (4 + 0.3 * 3 + 0.7 * 2 + 1)."""
    target = torch.zeros(1, 4, 4, dtype=torch.uint8)
    target.view(-1)[:6] = 1
    predicted = torch.zeros(1, 16, dtype=torch.bool)
    predicted[0, :4] = predicted[0, 8:11] = True
    logits = torch.where(predicted, 60.0, -60.0).view(1, 1, 4, 4).double()
    loss = tversky(logits, target, all_valid(target), alpha=0.3, beta=0.7)
    assert loss.item() == pytest.approx(1 - 5 / (5 + 0.9 + 1.4))


def test_two_softmax_channels_and_one_sigmoid_channel_agree() -> None:
    torch.manual_seed(0)
    logit = torch.randn(2, 1, 8, 8, dtype=torch.double)
    target = torch.randint(0, 2, (2, 8, 8), dtype=torch.uint8)
    pair = torch.cat([torch.zeros_like(logit), logit], 1)
    one, two = (tversky(x, target, all_valid(target), alpha=0.3, beta=0.7) for x in (logit, pair))
    torch.testing.assert_close(one, two)


def test_a_class_that_is_neither_there_nor_predicted_costs_nothing() -> None:
    target = torch.zeros(1, 8, 8, dtype=torch.uint8)
    logits = torch.tensor([80.0, -80.0, -80.0]).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    assert tversky(logits, target, all_valid(target), alpha=0.3, beta=0.7).item() == pytest.approx(0, abs=1e-6)


def test_bce_is_torchs_with_its_positive_weight() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 1, 8, 8, dtype=torch.double)
    target = torch.randint(0, 2, (1, 8, 8), dtype=torch.uint8)
    expected = F.binary_cross_entropy_with_logits(
        logits[:, 0], target.double(), pos_weight=torch.tensor(7.0, dtype=torch.double)
    )
    found = weighted_bce(logits, target, all_valid(target), positive_weight=7.0)
    assert found.item() == pytest.approx(expected.item())


@pytest.mark.parametrize(("name", "outputs"), [("tversky", 3), ("tversky", 1), ("weighted_bce", 1)])
def test_an_image_without_a_valid_pixel_has_loss_exactly_zero(name: LossName, outputs: int) -> None:
    criterion = loss_named(name, alpha=0.3, beta=0.7, positive_weight=10)
    target = torch.full((1, 8, 8), IGNORE, dtype=torch.uint8)
    logits = torch.randn(1, outputs, 8, 8, requires_grad=True)
    loss = criterion(logits, target, torch.zeros(1, 1, 8, 8, dtype=torch.bool))
    assert loss.item() == 0
    loss.sum().backward()
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_a_loss_in_half_precision_is_summed_in_single() -> None:
    """bfloat16 stops counting at 256, and this image has 65,536 pixels."""
    target = torch.zeros(1, 256, 256, dtype=torch.uint8)
    logits = torch.zeros(1, 1, 256, 256, dtype=torch.bfloat16)
    loss = weighted_bce(logits, target, all_valid(target), positive_weight=1)
    assert loss.item() == pytest.approx(math.log(2), rel=1e-6)
