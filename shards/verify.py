"""Read every byte of a dataset and say what is wrong with it."""

import hashlib
import tarfile
from pathlib import Path

import numpy as np

from shards.codecs import codec_named
from shards.errors import SampleError
from shards.manifest import Manifest, load_manifest
from shards.progress import Progress, silent
from shards.reader import ShardReader


def verify(root: Path | str, progress: Progress = silent) -> list[str]:
    """Every problem of the dataset, a line each; an empty list means that every byte is as it was packed.

    Raises:
        DatasetError: The manifest itself cannot be trusted, so there is nothing to compare with.
    """
    manifest = load_manifest(root)
    reader = ShardReader(manifest)
    problems: list[str] = []
    done = 0
    first_row = 0
    for shard in manifest.header.shards:
        path = manifest.root / shard.name
        rows = range(first_row, first_row + shard.samples)
        first_row += shard.samples
        found = []
        for row in rows:
            found += _sample_problems(reader, row)
            done += 1
            progress("verifying", done, len(manifest))
        # A damaged sample explains a wrong hash and is the better message.
        problems += found or _file_problems(path, shard.size, shard.sha256) or _member_problems(manifest, path, rows)
    return problems


def _sample_problems(reader: ShardReader, row: int) -> list[str]:
    try:
        sample = reader.read(row)
    except SampleError as error:
        return [str(error)]
    counts = np.bincount(sample.mask.reshape(-1), minlength=reader.manifest.class_pixels.shape[1])
    if (counts == reader.manifest.class_pixels[row]).all():
        return []
    claimed = reader.manifest.class_pixels[row].tolist()
    return [f"{reader.shard_path(row)}: {sample.key} has class pixels {counts.tolist()}, the manifest says {claimed}"]


def _file_problems(path: Path, size: int, sha256: str) -> list[str]:
    if (found := path.stat().st_size) != size:
        return [f"{path}: {found:,} bytes, the manifest says {size:,}; copy the shard again"]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        return [f"{path}: sha256 is {digest[:12]}…, the manifest says {sha256[:12]}…; copy the shard again"]
    return []


def _member_problems(manifest: Manifest, path: Path, rows: range) -> list[str]:
    """Whether the tar shows other readers the same samples that the manifest shows ours."""
    suffix = codec_named(manifest.header.codec).suffix
    expected = []
    for row, key in zip(rows, manifest.text("key", rows), strict=True):
        for part in ("image", "mask"):
            offset, size = (int(manifest.members[f"{part}_{what}"][row]) for what in ("offset", "bytes"))
            expected.append((f"{key}.{part}{suffix}", offset, size))
        expected.append((f"{key}.json", 0, 0))
    try:
        with tarfile.open(path, "r:") as tar:
            found = [
                (member.name, 0, 0) if member.name.endswith(".json") else (member.name, member.offset_data, member.size)
                for member in tar
            ]
    except tarfile.TarError as error:
        return [f"{path}: not a tar ({error}); copy the shard again"]
    if found == expected:
        return []
    wrong = next((pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), (len(found), len(expected)))
    return [f"{path}: member is {wrong[0]}, the manifest says {wrong[1]}; copy the shard again"]
