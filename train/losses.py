"""Losses: logits, target and validity in, one value per image out.

Per image and not per batch, so that a step's loss is a sum over its images, however they are cut into micro-batches.
Sums are taken in float32 or wider. Padding is selected away, not multiplied by zero: whatever stands there, an
infinity even, changes neither a loss nor a gradient. An image without a valid pixel has loss exactly 0.
"""

from functools import partial
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

LossName = Literal["tversky", "weighted_bce"]


class Loss(Protocol):
    """What the loop calls."""

    def __call__(self, logits: Tensor, target: Tensor, valid: Tensor) -> Tensor:
        """One loss per image, [N].

        Args:
            logits: [N, C, H, W], or [N, 1, H, W] for a binary mask.
            target: uint8 [N, H, W], class ids; IGNORE where invalid.
            valid: bool [N, 1, H, W].
        """
        ...


def _wide(logits: Tensor, valid: Tensor) -> Tensor:
    """Logits in float32 or wider, 0 where the pixel is not real."""
    return torch.where(valid, logits, 0).to(torch.promote_types(logits.dtype, torch.float32))


def tversky(logits: Tensor, target: Tensor, valid: Tensor, *, alpha: float, beta: float) -> Tensor:
    """One minus the Tversky index, TP / (TP + alpha FP + beta FN), mean over the foreground classes.

    With soft counts, and one pixel added above and below so that an absent class that is not predicted scores 1.
    Salehi et al. 2017, arXiv:1706.05721, equation 3. alpha = beta = 0.5 is Dice.
    """
    logits = _wide(logits, valid)
    chance = logits.sigmoid() if logits.shape[1] == 1 else logits.softmax(1)[:, 1:]
    classes = torch.arange(1, chance.shape[1] + 1, device=target.device, dtype=target.dtype)
    present = (target[:, None] == classes.view(1, -1, 1, 1)) & valid
    hits = torch.where(present, chance, 0).sum((2, 3))
    false_alarms = torch.where(valid, chance, 0).sum((2, 3)) - hits
    misses = present.sum((2, 3)) - hits
    index = (hits + 1) / (hits + alpha * false_alarms + beta * misses + 1)
    return (1 - index).mean(1)


def weighted_bce(logits: Tensor, target: Tensor, valid: Tensor, *, positive_weight: float) -> Tensor:
    """Binary cross-entropy, mean over the valid pixels, those of class 1 counted `positive_weight` times."""
    logits = _wide(logits, valid)
    weight = torch.tensor(positive_weight, device=logits.device, dtype=logits.dtype)
    positive = ((target == 1)[:, None] & valid).to(logits.dtype)
    each = F.binary_cross_entropy_with_logits(logits, positive, pos_weight=weight, reduction="none")
    return torch.where(valid, each, 0).sum((1, 2, 3)) / valid.sum((1, 2, 3)).clamp(min=1)


def loss_named(name: LossName, *, alpha: float, beta: float, positive_weight: float) -> Loss:
    """The loss of a configuration."""
    if name == "tversky":
        return partial(tversky, alpha=alpha, beta=beta)
    return partial(weighted_bce, positive_weight=positive_weight)
