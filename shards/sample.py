"""What a sample is, and what a source of samples must offer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

MAX_SAMPLE_PIXELS = 2**27
"""Most pixels one sample may claim (134 Mpx: 16 of the widest logs; Pillow opens up to 179). Checked before anything is
allocated."""

KEY_PATTERN = "[A-Za-z0-9_][A-Za-z0-9_-]{0,79}"
"""What a key looks like, whole; see `is_key`."""


def is_key(text: str) -> bool:
    """Whether `text` can name a sample: 1 to 80 of A-Z a-z 0-9 _ -, no leading hyphen.

    No dots, because webdataset ends the key at the first one; 80, because a tar name holds 100 bytes.
    """
    return re.fullmatch(KEY_PATTERN, text) is not None


@dataclass(frozen=True, kw_only=True)
class LogInfo:
    """What is known of a sample before its pixels are read."""

    key: str
    """Unique in the dataset; see `is_key`."""
    group: str
    """The well it belongs to: samples of one group are never on both sides of a split."""
    height: int
    width: int
    source: str
    """Where it came from, for people."""

    @property
    def pixels(self) -> int:
        """Height times width."""
        return self.height * self.width


@dataclass(frozen=True, kw_only=True, eq=False)
class LogSample:
    """One log: its pixels and, for each pixel, its class."""

    key: str
    group: str
    image: Pixels
    """uint8 [H, W], grey, 255 is white."""
    mask: Pixels
    """uint8 [H, W], class ids from 0; 0 is background."""


def count_classes(mask: Pixels, classes: int) -> list[int]:
    """Pixels of each class id below `classes`.

    A pass per class, 8 times as fast as one of numpy's bincount, which widens every byte to int64 first.
    """
    return [int(np.count_nonzero(mask == index)) for index in range(classes)]


class LogSource(Protocol):
    """Where logs come from. Sizes first, for all; pixels later, one sample at a time, in any order.

    `scan` reads no more than it must to know every sample and to find every problem; it raises `SourceError` with
    all of them. `load(scan()[i])` is a pure function of the source: packing the same source twice gives the same bytes.
    """

    @property
    def classes(self) -> tuple[str, ...]:
        """Name of each class id; the first is the background."""
        ...

    def scan(self) -> Sequence[LogInfo]:
        """Every sample the source holds."""
        ...

    def load(self, info: LogInfo) -> LogSample:
        """The pixels of one of them."""
        ...
