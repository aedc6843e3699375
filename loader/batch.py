"""What the training loop receives, and what it may ask of whoever delivers it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from shards.geometry import Padding

IGNORE = 255
"""Class of a padded pixel in `Batch.masks`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """One micro-batch: samples padded to a common box, and where it stands in its step."""

    images: Tensor
    """uint8 [N, 1, H, W], grey; padding is 0."""
    masks: Tensor
    """uint8 [N, H, W], class ids; padding is IGNORE."""
    sizes: Tensor
    """int32 [N, 2], true height and width, pixels."""
    keys: tuple[str, ...]
    step: int
    """The step of the epoch it belongs to, from 0."""
    step_images: int
    """Images in the whole step, all its micro-batches: what a sum of losses is divided by."""
    ends_step: bool
    """Whether it is the last micro-batch of its step: time for the optimiser."""

    def __len__(self) -> int:
        """Images in this micro-batch."""
        return len(self.keys)

    @property
    def valid(self) -> Tensor:
        """bool [N, 1, H, W], true on real pixels; made on the device from `sizes`, so it crosses no bus."""
        height, width = self.images.shape[-2:]
        return valid_pixels(self.sizes, height, width)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device. From pinned memory the copy does not wait."""
        images, masks, sizes = (part.to(device, non_blocking=True) for part in (self.images, self.masks, self.sizes))
        return replace(self, images=images, masks=masks, sizes=sizes)


def valid_pixels(sizes: Tensor, height: int, width: int) -> Tensor:
    """Which pixels of a padded box are real: bool [N, 1, height, width] from sizes [N, 2]."""
    rows = torch.arange(height, device=sizes.device) < sizes[:, 0, None]
    columns = torch.arange(width, device=sizes.device) < sizes[:, 1, None]
    return (rows[:, :, None] & columns[:, None, :])[:, None]


@dataclass(frozen=True, kw_only=True)
class LoaderReport:
    """What the current or last iteration delivered, and what it cost."""

    batches: int
    images: int
    padding: Padding
    bytes_read: int
    wait_seconds: float
    """Time the consumer waited for data."""
    wall_seconds: float
    """Time since the iteration began."""

    @property
    def stall(self) -> float:
        """Share of the time that the consumer waited for data, 0 to 1."""
        return self.wait_seconds / self.wall_seconds if self.wall_seconds else 0.0


class BatchSource(Protocol):
    """Delivers one epoch of batches per iteration and can be stopped and continued anywhere."""

    epoch: int
    """The epoch that the next iteration delivers, or goes on with."""

    def __iter__(self) -> Iterator[Batch]:
        """The batches that are left of the current epoch."""
        ...

    def __len__(self) -> int:
        """Batches of the whole current epoch."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where delivery stands: the first step that was not wholly delivered."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there. A seek, not a replay."""
        ...

    def report(self) -> LoaderReport:
        """What this iteration has delivered so far, or the last one did."""
        ...
