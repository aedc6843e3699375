"""Samples of different sizes -> one padded batch in one buffer."""

import weakref
from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.batch import IGNORE
from loader.plan import MicroBatch
from shards.sample import Pixels


def pad_and_mask(image: Pixels, mask: Pixels, height: int, width: int) -> None:
    """Mark what lies outside a sample in its place of the batch: image 0, mask IGNORE.

    Touches the padding only, about 3 % of the pixels; the sample's own were decoded into place.

    Args:
        image: The sample's place, uint8 [H, W] of the box.
        mask: Likewise.
        height: The sample's true height, pixels.
        width: Its true width.
    """
    for place, filler in ((image, 0), (mask, IGNORE)):
        place[:height, width:] = filler
        place[height:] = filler


class SlabPool:
    """Host buffers that batches are assembled in, used again and again: a fresh page costs more than decoding it.

    A slab comes back by itself when the last tensor over it is gone, so a consumer may keep a batch as long
    as it likes: its slab is missing meanwhile. Memory: `count` slabs, and one more for each batch kept beyond them.
    """

    def __init__(self, pixels: int, *, count: int, pinned: bool) -> None:
        """Buffers for `pixels` padded pixels of image and as many of mask."""
        self._bytes = 2 * pixels
        self._unborn = count
        self._pinned = pinned
        self._free: deque[Tensor] = deque()

    def take(self, micro_batch: MicroBatch, *, must: bool) -> NDArray[np.uint8] | None:
        """Room for a batch: uint8 [2, N, H, W], images first, then masks; contents arbitrary.

        Returns None when every slab is in use, unless it `must` be.
        """
        try:
            slab = self._free.popleft()
        except IndexError:
            if self._unborn == 0 and not must:
                return None
            self._unborn = max(self._unborn - 1, 0)
            slab = torch.empty(self._bytes, dtype=torch.uint8, pin_memory=self._pinned)
        room = slab.numpy()[: 2 * micro_batch.padded_pixels].reshape(2, len(micro_batch.rows), *micro_batch.box)
        weakref.finalize(room, self._free.append, slab).atexit = False
        return room
