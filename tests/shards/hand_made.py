"""A source made by hand: a fake that enters through the LogSource protocol."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shards.sample import LogInfo, LogSample


@dataclass(frozen=True)
class HandMadeSource:
    """Logs of the sizes given, their pixels drawn from their keys."""

    infos: Sequence[LogInfo]
    classes: tuple[str, ...] = ("background", "curve 1", "curve 2")
    loads: list[str] = field(default_factory=list)
    """Keys in the order they were asked for."""

    def scan(self) -> Sequence[LogInfo]:
        return self.infos

    def load(self, info: LogInfo) -> LogSample:
        self.loads.append(info.key)
        rng = np.random.default_rng(zlib.crc32(info.key.encode()))
        image, mask = (rng.integers(0, high, (info.height, info.width)).astype(np.uint8) for high in (256, 3))
        return LogSample(key=info.key, group=info.group, image=image, mask=mask)


def log(key: str, *, group: str = "", height: int = 8, width: int = 16) -> LogInfo:
    """A log that is its own well unless told otherwise."""
    return LogInfo(key=key, group=group or key, height=height, width=width, source=f"{key}.tif")
