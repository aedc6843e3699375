"""Read every byte of a dataset and say what is wrong with it."""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from shards.codecs import codec_named
from shards.errors import SampleError
from shards.load import load_manifest
from shards.manifest import Manifest
from shards.progress import Progress, silent
from shards.reader import ShardReader
from shards.sample import count_classes

_JSON_BYTES_AT_MOST = 2**20  # a class count and a dozen short fields take a thousandth


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
        if cut := _size_problems(path, shard.size):
            problems += cut
            done += shard.samples
            continue
        found = []
        for row in rows:
            found += _sample_problems(reader, row)
            done += 1
            progress("verifying", done, len(manifest))
        # A damaged sample explains a wrong hash and is the better message.
        problems += found or _hash_problems(path, shard.sha256) or _member_problems(manifest, path, rows)
    return problems


def _sample_problems(reader: ShardReader, row: int) -> list[str]:
    try:
        sample = reader.read(row)
    except SampleError as error:
        return [str(error)]
    claimed = reader.manifest.class_pixels[row].tolist()
    if (counts := count_classes(sample.mask, len(claimed))) == claimed:
        return []
    return [f"{reader.shard_path(row)}: {sample.key} has class pixels {counts}, the manifest says {claimed}"]


def _size_problems(path: Path, size: int) -> list[str]:
    if not path.is_file():
        return [f"{path}: missing, the manifest says {size:,} bytes; copy the shard again"]
    if (found := path.stat().st_size) != size:
        what = "truncated: " if found < size else ""
        return [f"{path}: {what}{found:,} bytes, the manifest says {size:,}; copy the shard again"]
    return []


def _hash_problems(path: Path, sha256: str) -> list[str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        return [f"{path}: sha256 is {digest[:12]}…, the manifest says {sha256[:12]}…; copy the shard again"]
    return []


def _member_problems(manifest: Manifest, path: Path, rows: range) -> list[str]:
    """Whether the tar shows other readers the same samples that the manifest shows ours."""
    try:
        with tarfile.open(path, "r:") as tar:
            found = [(member.name, _told(tar, member)) for member in tar]
    except (tarfile.TarError, ValueError, RecursionError) as error:
        return [f"{path}: not a tar of samples ({error}); copy the shard again"]
    for (name, told), (expected, claims) in zip_longest(found, _expected(manifest, rows), fillvalue=("its end", {})):
        if name != expected:
            return [f"{path}: {name} is where the manifest has {expected}; copy the dataset again"]
        for field, claim in claims.items():
            if told.get(field) != claim:
                return [
                    f"{path}: {name} has {field} {told.get(field)!r}, the manifest says {claim!r}; "
                    "copy the dataset again"
                ]
    return []


def _expected(manifest: Manifest, rows: range) -> Iterator[tuple[str, dict[str, Any]]]:
    """A shard's members by the manifest: names, and what each must tell."""
    suffix = codec_named(manifest.header.codec).suffix
    for facts in manifest.table.slice(rows.start, len(rows)).to_pylist():
        for part in ("image", "mask"):
            place = {"offset": facts.pop(f"{part}_offset"), "bytes": facts.pop(f"{part}_bytes")}
            yield f"{facts['key']}.{part}{suffix}", place
        yield f"{facts['key']}.json", facts


def _told(tar: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, Any]:
    """What a member says: a JSON its fields, any other where it lies."""
    if not member.name.endswith(".json"):
        return {"offset": member.offset_data, "bytes": member.size}
    content = tar.extractfile(member)
    told = json.loads(content.read(_JSON_BYTES_AT_MOST)) if content else None
    if not isinstance(told, dict):
        raise ValueError(f"{member.name} holds no fields")
    return told
