"""What tests of every package start from: one small dataset of synthetic logs, packed once a session."""

from pathlib import Path

import pytest
from hypothesis import settings

from shards.pack import PackConfig, pack
from shards.synthetic import SyntheticConfig, SyntheticSource

settings.register_profile("untimed", deadline=None)  # a busy machine is no bug
settings.load_profile("untimed")

TINY = SyntheticConfig(count=40, classes=3, width=(40, 200), height=(33, 64), noise="mid", seed=0)
"""The logs that `tiny_dataset` holds."""


@pytest.fixture(scope="session")
def tiny_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 logs of three classes, 33..64 x 40..200 px, in zstd shards. Shared: read it, never write into it."""
    out = tmp_path_factory.mktemp("tiny") / "dataset"
    pack(SyntheticSource(TINY), out, PackConfig())
    return out
