"""How large the measurements are, and the logs they are taken on."""

from collections.abc import Sequence
from dataclasses import dataclass

from shards.sample import LogInfo, LogSample
from shards.synthetic import Noise, SyntheticConfig, SyntheticSource


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes and repetitions of a run: the same code in both forms."""

    width: tuple[int, int]
    """Narrowest and widest log of the loader's and the packer's benchmarks, pixels."""
    loaded: int
    """Logs in an epoch of the loader's benchmark."""
    packed: int
    """Logs that are packed."""
    trained: int
    """Logs in an epoch of the training benchmark."""
    rounds: int
    """How often each contender runs."""


FULL = Scale(width=(3200, 12800), loaded=32, packed=8, trained=40, rounds=5)
"""Full-size logs; 150 megapixels, so that a small machine holds them in memory and, as PNG and as shards, on disk."""
QUICK = Scale(width=(800, 3200), loaded=24, packed=8, trained=20, rounds=2)
"""A quarter as wide: shows that everything runs, and roughly how the ratios stand."""


def logs(count: int, width: tuple[int, int], noise: Noise) -> SyntheticSource:
    """Synthetic logs of full height."""
    return SyntheticSource(SyntheticConfig(count=count, width=width, noise=noise))


class MemorySource:
    """A LogSource whose pixels are in memory already, so that only what is done with them is timed."""

    def __init__(self, source: SyntheticSource) -> None:
        self.classes = source.classes
        self._infos = source.scan()
        self._samples = {info.key: source.load(info) for info in self._infos}
        self.megapixels = sum(info.pixels for info in self._infos) / 1e6
        """Of the images; the masks have as many."""

    def scan(self) -> Sequence[LogInfo]:
        """See `LogSource`."""
        return self._infos

    def load(self, info: LogInfo) -> LogSample:
        """See `LogSource`."""
        return self.sample(info.key)

    def sample(self, key: str) -> LogSample:
        """The log of a key."""
        return self._samples[key]
