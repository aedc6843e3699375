"""How good predictions are, from one confusion matrix of integers: the same however the pixels were batched."""

import torch
from torch import Tensor


def predicted_classes(logits: Tensor) -> Tensor:
    """The likeliest class of each pixel, int64 [N, H, W]; one logit means class 1 where it is positive."""
    return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)


def confusion(predicted: Tensor, target: Tensor, valid: Tensor, classes: int) -> Tensor:
    """Pixels by true class (row) and predicted class (column), int64 [classes, classes], over valid pixels."""
    real = valid[:, 0]
    pairs = target[real].long() * classes + predicted[real]
    return torch.bincount(pairs, minlength=classes * classes).view(classes, classes)


def iou(matrix: Tensor) -> list[float]:
    """Intersection over union of each class; a class that is neither there nor predicted scores 1."""
    hits = matrix.diagonal()
    union = matrix.sum(0) + matrix.sum(1) - hits
    return [1.0 if total == 0 else hit / total for hit, total in zip(hits.tolist(), union.tolist(), strict=True)]
