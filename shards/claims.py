"""Whether a manifest contradicts itself: what a stranger's header and table claim, held against each other.

Vectorised over the rows: a million samples are checked in a few passes over their columns.
"""

import re
from typing import get_args

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from shards.codecs import CodecName
from shards.manifest import SCHEMA, SPLITS, Header, Manifest
from shards.sample import KEY_PATTERN, MAX_SAMPLE_PIXELS

Wrong = NDArray[np.bool_]

_SHARD_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\.tar")
_CLASSES_AT_MOST = 255  # ids are uint8 and 255 is IGNORE
_COUNT_AT_MOST = 2**48  # bytes, samples or pixels: 281 TB, and no sum of two leaves int64
_ALIGN_AT_MOST = 4096


def header_problems(header: Header) -> list[str]:
    """Everything that is wrong with a header, a line each."""
    problems = []
    if not 2 <= len(header.classes) < _CLASSES_AT_MOST or not all(isinstance(name, str) for name in header.classes):
        problems.append(f"classes are {header.classes!r}, expected 2 to {_CLASSES_AT_MOST - 1} names")
    if header.codec not in get_args(CodecName):
        problems.append(f"codec is {header.codec!r}, this version reads {' and '.join(get_args(CodecName))}")
    if not _is_count(header.align) or not 1 <= header.align <= _ALIGN_AT_MOST:
        problems.append(f"align is {header.align!r}, expected 1 to {_ALIGN_AT_MOST:,} pixels")
    if not all(map(_is_count, header.bucket_edges)) or list(header.bucket_edges) != sorted(set(header.bucket_edges)):
        problems.append(f"bucket_edges are {header.bucket_edges!r}, expected ascending widths, pixels")
    names = [shard.name for shard in header.shards]
    for shard in header.shards:
        if not isinstance(shard.name, str) or not _SHARD_NAME.fullmatch(shard.name):
            problems.append(
                f"shard {shard.name!r} leaves the dataset, expected a plain name such as train-b00-000000.tar"
            )
        if shard.split not in SPLITS:
            problems.append(f"shard {shard.name!r} is of split {shard.split!r}, expected {' or '.join(SPLITS)}")
        if not all(map(_is_count, (shard.bucket, shard.samples, shard.size))):
            problems.append(f"shard {shard.name!r} has a bucket, sample count or size that is no count")
        if not _is_digest(shard.sha256):
            problems.append(f"shard {shard.name!r} has the sha256 {shard.sha256!r}, expected 64 hexadecimal digits")
    if len(set(map(str, names))) != len(names):
        problems.append("a shard is named twice")
    return problems


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= _COUNT_AT_MOST


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def table_problems(manifest: Manifest) -> list[str]:
    """What is wrong with a table, one line per kind of problem, with the first sample that shows it."""
    if misfit := _misfit(manifest):
        return [misfit]
    problems = [
        f"{_named(manifest, int(np.argmax(wrong)))} {claim}" + _and_more(int(wrong.sum()) - 1)
        for claim, wrong in (_size_claims(manifest) | _place_claims(manifest)).items()
        if wrong.any()
    ]
    shards = manifest.header.shards
    counted = np.bincount(manifest.column("shard"), minlength=len(shards))
    problems += [
        f"{entry.name} has {count:,} rows, the header says {entry.samples:,}"
        for entry, count in zip(shards, counted, strict=True)
        if count != entry.samples
    ]
    return problems


def _misfit(manifest: Manifest) -> str:
    """What keeps a table from being looked at further; empty if nothing does."""
    header, table = manifest.header, manifest.table
    for name in SCHEMA.names:
        if table[name].null_count:
            return f"column {name} has empty cells"
    if pc.list_flatten(table["class_pixels"]).null_count:
        return "column class_pixels has empty counts"
    if not len(table):
        return "no sample, expected at least one"
    are_keys = pc.match_substring_regex(table["key"], f"^({KEY_PATTERN})$")
    if len(strange := table["key"].filter(pc.invert(are_keys))):
        return f"{strange[0].as_py()!r} cannot be a key, expected 1 to 80 of A-Z a-z 0-9 _ -"
    if len(pc.unique(table["key"])) != len(table):
        return "a key stands twice"
    shard = manifest.column("shard")
    if len(astray := shard[(shard < 0) | (shard >= len(header.shards))]):
        return f"a sample is in shard {astray[0]}, the header has {len(header.shards)}"
    lengths = np.asarray(pc.list_value_length(table["class_pixels"]).to_numpy())
    if len(others := lengths[lengths != len(header.classes)]):
        return f"class_pixels hold {others[0]} counts, expected {len(header.classes)}, one a class"
    return ""


def _size_claims(manifest: Manifest) -> dict[str, Wrong]:
    """Which rows claim pixels, counts or buckets that do not fit their size."""
    sizes = manifest.sizes.astype(np.int64)
    pixels = sizes.prod(axis=1)
    counts = manifest.class_pixels
    edges = np.array([-1, *manifest.header.bucket_edges], np.int64)
    bucket = manifest.column("bucket").clip(0, len(edges) - 2)
    return {
        f"claims a size out of range, at most {MAX_SAMPLE_PIXELS:,} pixels": (sizes < 1).any(axis=1)
        | (pixels > MAX_SAMPLE_PIXELS),
        "has class_pixels that do not add up to its pixels": (counts < 0).any(axis=1)
        | (counts > pixels[:, None]).any(axis=1)
        | (counts.sum(axis=1) != pixels),
        "is in a bucket that does not hold its width": (bucket != manifest.column("bucket"))
        | (sizes[:, 1] <= edges[bucket])
        | (sizes[:, 1] > edges[bucket + 1]),
    }


def _place_claims(manifest: Manifest) -> dict[str, Wrong]:
    """Which rows claim bytes or a shard that cannot be theirs."""
    names = ("image_offset", "image_bytes", "mask_offset", "mask_bytes")
    image_offset, image_bytes, mask_offset, mask_bytes = spans = np.stack([manifest.column(name) for name in names])
    shard = manifest.column("shard")
    shard_split, shard_bucket, shard_size = (
        np.array([getattr(entry, name) for entry in manifest.header.shards])[shard]
        for name in ("split", "bucket", "size")
    )
    pixels = manifest.sizes.astype(np.int64).prod(axis=1)
    most = pixels + pixels // 8 + 4096  # bytes: no lossless codec of ours expands further
    next_header = -(-(image_offset + image_bytes) // 512) * 512  # tar's blocks; the mask's data is one further
    return {
        # Each number by itself first: sums of what passes do not overflow.
        "claims members that lie outside its shard": ((spans < 0) | (spans > shard_size)).any(axis=0)
        | (mask_offset + mask_bytes > shard_size),
        "claims a mask that does not follow its image": mask_offset != next_header + 512,
        "claims members too large for its pixels": (image_bytes > most) | (mask_bytes > most),
        "claims an empty member": (image_bytes < 1) | (mask_bytes < 1),
        "is not of its shard's split": np.asarray(manifest.table["split"]) != shard_split,
        "is not of its shard's bucket": manifest.column("bucket") != shard_bucket,
        "is not in shard order": np.append(np.diff(shard) < 0, False),
    }


def _named(manifest: Manifest, row: int) -> str:
    height, width = manifest.sizes[row]
    return f"{manifest.text('key', [row])[0]} of {height:,} x {width:,} pixels"


def _and_more(count: int) -> str:
    return f", and so do {count:,} more" if count else ""
