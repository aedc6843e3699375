"""Files that appear whole, and shards written as one of them."""

import hashlib
import os
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

PARTIAL = ".partial"
"""Suffix of a file that is being written. It is never read."""


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` survive a power cut."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write `path` so that it is there whole or not at all: written beside, fsynced, renamed.

    Whatever was at `path` before stays until the rename; on an error it stays for good.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a write knows its descriptor, not its name
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    sync_directory(path.parent)


@dataclass(frozen=True)
class ShardDigest:
    """What identifies a finished shard file."""

    size: int
    """Bytes."""
    sha256: str


class ShardWriter:
    """One USTAR file in webdataset's convention. The same members in the same order give the same bytes.

    A context manager: the shard appears under its name when the block ends without an error.
    """

    def __init__(self, path: Path) -> None:
        self._appearing = whole_file(path)
        self._hash = hashlib.sha256()
        self._size = 0

    def __enter__(self) -> Self:
        self._file = self._appearing.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                self._end()
            except BaseException:
                self._appearing.__exit__(*sys.exc_info())
                raise
        self._appearing.__exit__(kind, error, trace)

    def _end(self) -> None:
        """tar's own end: two zero blocks, then zeros to a whole record."""
        end = self._size + 2 * tarfile.BLOCKSIZE
        self._write(bytes(-(-end // tarfile.RECORDSIZE) * tarfile.RECORDSIZE - self._size))

    def add(self, name: str, payload: bytes) -> int:
        """Append a member. Returns the offset of its data in the file, bytes."""
        header = tarfile.TarInfo(name)  # mtime, uid and gid are 0 and the mode 0644: nothing of this machine
        header.size = len(payload)
        self._write(header.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict"))
        offset = self._size
        self._write(payload)
        self._write(bytes(-len(payload) % tarfile.BLOCKSIZE))
        return offset

    @property
    def digest(self) -> ShardDigest:
        """Size and hash of all that was written; final once the block has ended."""
        return ShardDigest(self._size, self._hash.hexdigest())

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._size += len(data)
