"""From a manifest's row to pixels. Safe between threads; holds no file open between reads."""

import os
import threading
from pathlib import Path

import numpy as np

from shards.codecs import codec_named
from shards.errors import DatasetError, SampleError
from shards.manifest import Manifest
from shards.sample import LogSample, Pixels


class ShardReader:
    """Reads samples of one dataset. One `pread` a sample: image and mask lie side by side."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._codec = codec_named(manifest.header.codec)
        self._local = threading.local()

    def read(self, row: int) -> LogSample:
        """One sample, in arrays of its own."""
        height, width = (int(side) for side in self.manifest.sizes[row])
        image, mask = np.empty((height, width), np.uint8), np.empty((height, width), np.uint8)
        self.read_into(row, image, mask)
        key, group = (self.manifest.text(name, [row])[0] for name in ("key", "group"))
        return LogSample(key=key, group=group, image=image, mask=mask)

    def read_into(self, row: int, image: Pixels, mask: Pixels) -> int:
        """Decode a sample into place.

        Args:
            row: Which sample.
            image: Where the image goes, uint8 [H, W] of the sample's true size, in any layout.
            mask: Where the mask goes, likewise.

        Returns:
            Bytes read from the shard.

        Raises:
            SampleError: The bytes are not there, are damaged, or hold something else.
        """
        members = self.manifest.members
        offset = int(members["image_offset"][row])
        payload = self._pread(row, offset, int(members["mask_offset"][row] + members["mask_bytes"][row]) - offset)
        mask_start = int(members["mask_offset"][row]) - offset
        parts = {"image": (payload[: int(members["image_bytes"][row])], image), "mask": (payload[mask_start:], mask)}
        for part, (data, out) in parts.items():
            try:
                self._codec.decode_into(data, out)
            except DatasetError as error:
                raise self._error(row, f"{part}{self._codec.suffix}", str(error)) from error
        highest, classes = int(mask.max()), len(self.manifest.header.classes)
        if highest >= classes:
            raise self._error(row, f"mask{self._codec.suffix}", f"holds class {highest}, the dataset has {classes}")
        return len(payload)

    def shard_path(self, row: int) -> Path:
        """The file a sample lies in."""
        return self.manifest.root / self.manifest.header.shards[int(self.manifest.members["shard"][row])].name

    def _pread(self, row: int, offset: int, count: int) -> memoryview:
        """`count` bytes at `offset` of the row's shard, in a buffer the thread reuses."""
        buffer = getattr(self._local, "buffer", b"")
        if len(buffer) < count:
            buffer = self._local.buffer = bytearray(count)
        view = memoryview(buffer)[:count]
        found = 0
        try:
            handle = os.open(self.shard_path(row), os.O_RDONLY)
            try:
                while found < count and (read := os.preadv(handle, [view[found:]], offset + found)):
                    found += read
            finally:
                os.close(handle)
        except OSError as error:
            raise self._error(row, "image", f"cannot be read ({error.strerror})") from error
        if found < count:
            raise self._error(row, "image", f"ends after {found:,} of {count:,} bytes: the shard is truncated")
        return view

    def _error(self, row: int, member: str, what: str) -> SampleError:
        (key,) = self.manifest.text("key", [row])
        offset = int(self.manifest.members["mask_offset" if member.startswith("mask") else "image_offset"][row])
        return SampleError(
            f"{self.shard_path(row)}: {key}.{member} at byte {offset:,} {what}; "
            f"copy the shard again, then run `pack-shards verify {self.manifest.root}`"
        )
