"""Source -> dataset: decide which sample goes where, then write the shards and, last, the manifest."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shards.codecs import Codec, CodecName, codec_named
from shards.errors import ConfigError, SourceError, listing
from shards.geometry import ALIGN, bucket_edges, bucket_of
from shards.manifest import (
    FORMAT,
    HEADER_NAME,
    TABLE_NAME,
    Header,
    Manifest,
    Shard,
    Split,
    save_manifest,
    save_table,
)
from shards.progress import Progress, silent
from shards.sample import MAX_SAMPLE_PIXELS, LogInfo, LogSample, LogSource, Pixels, count_classes, is_key
from shards.writer import PARTIAL, ShardWriter

_UNFINISHED = "packing" + PARTIAL  # lies in a directory from a packing's first file to its last
_OUR_SHARD = re.compile(r"(train|val)-b\d{2}-\d{6}\.tar")


@dataclass(frozen=True, kw_only=True)
class PackConfig:
    """How samples become shards."""

    codec: CodecName = "zstd"
    """zstd packs 6 to 9 times as fast as png; png opens in anything."""
    val_share: float = 0.2
    """Share of the samples held out for validation, whole groups at a time."""
    buckets: int = 8
    """Width ranges; a shard holds one. Fewer when the widths do not differ."""
    shard_pixels: int = 512_000_000
    """Raw pixels after which a shard is closed: about a hundred full-size logs."""
    split_seed: int = 0
    """Decides which groups are held out and how samples are shuffled inside their bucket."""

    def __post_init__(self) -> None:
        problems = []
        if not 0 <= self.val_share < 1:
            problems.append(f"val-share is {self.val_share}, expected 0 to less than 1")
        if not 1 <= self.buckets <= 100:
            problems.append(f"buckets is {self.buckets}, expected 1 to 100")
        if self.shard_pixels < 1:
            problems.append(f"shard-pixels is {self.shard_pixels:,}, expected at least 1")
        if self.split_seed < 0:
            problems.append(f"split-seed is {self.split_seed}, expected 0 or more")
        if problems:
            raise ConfigError(listing("packing", problems))


@dataclass(frozen=True)
class ShardPlan:
    """One shard to write."""

    name: str
    split: Split
    bucket: int
    infos: tuple[LogInfo, ...]


def plan_pack(infos: Sequence[LogInfo], config: PackConfig) -> tuple[tuple[int, ...], list[ShardPlan]]:
    """Decide the bucket edges, and which sample goes into which shard.

    Every sample is in exactly one shard, and no group on both sides of a split. The result depends on the
    arguments alone, so the same source and settings give the same shards.
    """
    widths = np.array([info.width for info in infos], np.int32)
    edges = bucket_edges(widths, config.buckets)
    buckets = bucket_of(widths, edges)
    held_out = held_out_groups(infos, config)
    plans: list[ShardPlan] = []
    splits: tuple[Split, ...] = ("train", "val")
    for split in splits:
        in_split = np.array([(info.group in held_out) == (split == "val") for info in infos])
        for bucket in range(len(edges)):
            rows = np.flatnonzero(in_split & (buckets == bucket))
            shuffled = np.random.default_rng((config.split_seed, bucket)).permutation(rows)
            for number, cut in enumerate(_cut([infos[row] for row in shuffled], config.shard_pixels)):
                plans.append(ShardPlan(f"{split}-b{bucket:02d}-{number:06d}.tar", split, bucket, tuple(cut)))
    return edges, plans


def held_out_groups(infos: Sequence[LogInfo], config: PackConfig) -> set[str]:
    """The validation groups: in an order that the seed and the names decide, as many as reach `val_share`.

    At least one group stays on either side, unless there is one only or `val_share` is 0.
    """
    samples = Counter(info.group for info in infos)
    order = sorted(samples, key=lambda group: hashlib.sha256(f"{config.split_seed}:{group}".encode()).digest())
    held_out: set[str] = set()
    held = 0
    for group in order[:-1]:
        if held >= config.val_share * len(infos):
            break
        held_out.add(group)
        held += samples[group]
    return held_out


def _cut(infos: Sequence[LogInfo], shard_pixels: int) -> list[list[LogInfo]]:
    """Consecutive samples, a shard closed as soon as it holds `shard_pixels`."""
    shards: list[list[LogInfo]] = []
    room = 0
    for info in infos:
        if room <= 0:
            shards.append([])
            room = shard_pixels
        shards[-1].append(info)
        room -= info.pixels
    return shards


def pack(source: LogSource, out: Path, config: PackConfig, progress: Progress = silent) -> Manifest:
    """Write a source as a dataset. Until the manifest, its last file, is there, `out` is not a dataset.

    Memory: one sample's pixels and one row a sample.

    Raises:
        ConfigError: `out` already holds something else.
        SourceError: The source is empty, its keys clash, or a sample is not what the scan said.
    """
    infos = source.scan()
    _check(infos, out)
    _make_room(out)
    edges, plans = plan_pack(infos, config)
    codec = codec_named(config.codec)
    about = {"format": FORMAT, "classes": source.classes, "codec": codec.name, "align": ALIGN, "bucket_edges": edges}
    rows: list[dict[str, Any]] = []
    shards: list[Shard] = []
    try:
        for plan in plans:
            with ShardWriter(out / plan.name) as writer:
                for info in plan.infos:
                    sample = _load(source, info)
                    row = {**_facts(plan, sample, info, len(source.classes)), "shard": len(shards)}
                    rows.append(row | _write(writer, sample, codec, row | {"dataset": about}))
                    progress("packing", len(rows), len(infos))
            shards.append(_finished(plan, writer))
    except SourceError:
        _clear(out)  # the scan promised that nothing is written
        raise
    table, table_sha256 = save_table(out, rows)
    header = Header(
        classes=source.classes,
        codec=codec.name,
        align=ALIGN,
        bucket_edges=edges,
        shards=tuple(shards),
        table_sha256=table_sha256,
    )
    manifest = Manifest(out, header, table)
    save_manifest(manifest)
    (out / _UNFINISHED).unlink()
    return manifest


def _finished(plan: ShardPlan, writer: ShardWriter) -> Shard:
    digest = writer.digest
    return Shard(
        name=plan.name,
        split=plan.split,
        bucket=plan.bucket,
        samples=len(plan.infos),
        size=digest.size,
        sha256=digest.sha256,
    )


def _check(infos: Sequence[LogInfo], out: Path) -> None:
    if not infos:
        raise SourceError(f"the source holds no sample, so {out} would be empty; nothing was written")
    problems = [f"key {info.key!r} cannot name a sample" for info in infos if not is_key(info.key)]
    problems += [f"key {key} stands {n} times" for key, n in Counter(info.key for info in infos).items() if n > 1]
    problems += [
        f"{info.key} ({info.source}) is {info.height:,} x {info.width:,}, expected 1 to {MAX_SAMPLE_PIXELS:,} pixels"
        for info in infos
        if not (info.height > 0 and info.width > 0 and info.pixels <= MAX_SAMPLE_PIXELS)
    ]
    if problems:
        raise SourceError(listing("source", problems, advice="nothing was written"))


def _make_room(out: Path) -> None:
    """Create `out`, and clear what a pack that was killed left there; refuse to touch anything else."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: is a file; name a directory")
    out.mkdir(parents=True, exist_ok=True)
    if (out / HEADER_NAME).exists():
        raise ConfigError(f"{out}: already holds a dataset; name another directory, or remove this one first")
    unfinished = (out / _UNFINISHED).exists()
    if foreign := sorted(path.name for path in out.iterdir() if not (unfinished and _is_ours(path))):
        raise ConfigError(f"{out}: holds {foreign[0]}, which no unfinished packing left there; name an empty directory")
    _clear(out)
    (out / _UNFINISHED).touch()


def _clear(out: Path) -> None:
    """Remove what an unfinished packing wrote."""
    for path in out.iterdir():
        if _is_ours(path):
            path.unlink()


def _is_ours(path: Path) -> bool:
    name = path.name.removesuffix(PARTIAL)
    return path.name == _UNFINISHED or name in {TABLE_NAME, HEADER_NAME} or _OUR_SHARD.fullmatch(name) is not None


def _load(source: LogSource, info: LogInfo) -> LogSample:
    sample = source.load(info)
    if sample.image.shape != (info.height, info.width) or sample.mask.shape != sample.image.shape:
        raise SourceError(
            f"{info.source}: image {sample.image.shape} and mask {sample.mask.shape}, "
            f"but {info.height} x {info.width} when it was scanned; the file changed: pack again"
        )
    return sample


def _facts(plan: ShardPlan, sample: LogSample, info: LogInfo, classes: int) -> dict[str, Any]:
    """What the manifest says of a sample, less where its bytes lie."""
    if (highest := int(sample.mask.max())) >= classes:
        raise SourceError(f"{info.source}: the mask holds class {highest}, the source has {classes}")
    return {
        "key": info.key,
        "group": info.group,
        "split": plan.split,
        "bucket": plan.bucket,
        "height": info.height,
        "width": info.width,
        "class_pixels": count_classes(sample.mask, classes),
        "source": info.source,
    }


def _write(writer: ShardWriter, sample: LogSample, codec: Codec, facts: dict[str, Any]) -> dict[str, int]:
    """Append a sample's three members. Returns where they lie."""
    placed = {}
    for part, pixels in (("image", sample.image), ("mask", sample.mask)):
        payload = _encoded(codec, pixels)
        placed[f"{part}_offset"] = writer.add(f"{sample.key}.{part}{codec.suffix}", payload)
        placed[f"{part}_bytes"] = len(payload)
    writer.add(f"{sample.key}.json", json.dumps(facts, sort_keys=True).encode())
    return placed


def _encoded(codec: Codec, pixels: Pixels) -> bytes:
    """A payload that was read back: lossless is proven for every sample, for a tenth of the encoding's time."""
    payload = codec.encode(pixels)
    back = np.empty_like(pixels, order="C")
    codec.decode_into(memoryview(payload), back)
    assert np.array_equal(back, pixels), f"{codec.name} is not lossless"
    return payload
