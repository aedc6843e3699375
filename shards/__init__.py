"""Datasets of images that have no common shape: packing, reading, checking. Never imports torch."""

from shards.errors import WellfeedError
from shards.load import load_manifest
from shards.manifest import Manifest
from shards.pack import PackConfig, pack
from shards.reader import ShardReader
from shards.sample import LogInfo, LogSample, LogSource
from shards.verify import verify
from shards.webdataset import decode_sample

__all__ = [
    "LogInfo",
    "LogSample",
    "LogSource",
    "Manifest",
    "PackConfig",
    "ShardReader",
    "WellfeedError",
    "decode_sample",
    "load_manifest",
    "pack",
    "verify",
]
