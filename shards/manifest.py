"""What a dataset is: a header, `manifest.json`, and a row per sample, `samples.parquet`.

Both are input from strangers. Everything is checked when it is loaded, and every problem is listed.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shards.codecs import CodecName
from shards.errors import DatasetError, listing
from shards.geometry import Rows, Sizes
from shards.sample import KEY_PATTERN, MAX_SAMPLE_PIXELS
from shards.writer import whole_file

FORMAT = "wellfeed/1"
HEADER_NAME = "manifest.json"
TABLE_NAME = "samples.parquet"
Split = Literal["train", "val"]
SPLITS: tuple[Split, ...] = ("train", "val")

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("group", pa.string()),
        ("split", pa.string()),
        ("bucket", pa.int32()),
        ("shard", pa.int32()),
        ("height", pa.int32()),
        ("width", pa.int32()),
        ("image_offset", pa.int64()),
        ("image_bytes", pa.int64()),
        ("mask_offset", pa.int64()),
        ("mask_bytes", pa.int64()),
        ("class_pixels", pa.list_(pa.int64())),
        ("source", pa.string()),
    ]
)
"""Columns of `samples.parquet`, one row per sample in shard order. `shard` indexes the header's shard table;
offsets are of a member's data in its shard, bytes; `class_pixels` counts the mask's pixels of each class."""

_DISTRUST = "the dataset is not to be trusted: pack or copy it again"
_SHARD_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\.tar")
_CLASSES_AT_MOST = 255  # ids are uint8 and 255 is IGNORE
_HEADER_BYTES_AT_MOST = 2**26  # a million shards; a larger header is no header of ours
_COUNT_AT_MOST = 2**48  # bytes, samples or pixels: 281 TB, and no sum of two leaves int64
_ALIGN_AT_MOST = 4096


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One tar file: one bucket of one split."""

    name: str
    split: Split
    bucket: int
    samples: int
    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Header:
    """`manifest.json`."""

    classes: tuple[str, ...]
    codec: CodecName
    align: int
    bucket_edges: tuple[int, ...]
    """Widest width of each bucket, pixels."""
    shards: tuple[Shard, ...]
    table_sha256: str
    """Hash of `samples.parquet`."""

    def as_json(self) -> dict[str, Any]:
        """What the file holds, less the fingerprint."""
        samples = {split: sum(shard.samples for shard in self.shards if shard.split == split) for split in SPLITS}
        return {"format": FORMAT, "samples": samples, **asdict(self)}

    @property
    def fingerprint(self) -> str:
        """Identity of the dataset: a hash of the header, which holds the hashes of everything else."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class Manifest:
    """A dataset, known without opening a shard. Rows index the samples, in shard order."""

    root: Path
    header: Header
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def sizes(self) -> Sizes:
        """Height and width of each sample, int32 [N, 2], pixels."""
        return np.stack([self.column("height"), self.column("width")], axis=1).astype(np.int32)

    @cached_property
    def class_pixels(self) -> NDArray[np.int64]:
        """Pixels of each class in each mask, int64 [N, classes]."""
        flat = pc.list_flatten(self.table["class_pixels"]).to_numpy()
        return np.asarray(flat, np.int64).reshape(len(self), len(self.header.classes))

    def column(self, name: str) -> NDArray[Any]:
        """A numeric column as an array, [N]."""
        return np.asarray(self.table[name].to_numpy())

    def text(self, name: str, rows: Sequence[int] | Rows) -> list[str]:
        """The values of a text column in some rows."""
        return [str(value) for value in self.table[name].take(pa.array(rows, pa.int64())).to_pylist()]

    def rows(self, split: Split) -> Rows:
        """The rows of a split, ascending."""
        return np.flatnonzero(np.asarray(pc.equal(self.table["split"], split).to_numpy())).astype(np.int64)

    @cached_property
    def members(self) -> dict[str, NDArray[Any]]:
        """Where each sample's bytes lie: the columns a read needs, [N] each."""
        return {
            name: self.column(name) for name in ("shard", "image_offset", "image_bytes", "mask_offset", "mask_bytes")
        }


def save_manifest(manifest: Manifest) -> None:
    """Write the header of a dataset whose table and shards are in place. This is the commit."""
    content = {**manifest.header.as_json(), "fingerprint": manifest.header.fingerprint}
    with whole_file(manifest.root / HEADER_NAME) as file:
        file.write(json.dumps(content, indent=1).encode() + b"\n")


def save_table(root: Path, rows: Sequence[dict[str, Any]]) -> tuple[pa.Table, str]:
    """Write `samples.parquet`. Returns the table and the hash of the file."""
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    with whole_file(root / TABLE_NAME) as file:
        file.write(content)
    return table, hashlib.sha256(content).hexdigest()


def load_manifest(root: Path | str) -> Manifest:
    """Load and check a dataset's header and table; no shard is opened.

    Raises:
        DatasetError: There is no dataset, its version is unknown, or it contradicts itself; lists every problem.
    """
    root = Path(root)
    header = _load_header(root)
    table = _load_table(root, header)
    manifest = Manifest(root, header, table)
    if problems := _table_problems(manifest):
        raise DatasetError(listing(f"{root / TABLE_NAME}", problems, advice=_DISTRUST))
    return manifest


def _load_header(root: Path) -> Header:
    path = root / HEADER_NAME
    if not root.is_dir():
        raise DatasetError(f"{root}: no such directory; `pack-shards` makes a dataset, `--help` shows how")
    if not path.is_file():
        raise DatasetError(
            f"{root}: no {HEADER_NAME}, so this is not a dataset or its packing did not finish; "
            "run `pack-shards` again, or name the directory that holds the manifest"
        )
    if path.stat().st_size > _HEADER_BYTES_AT_MOST:
        raise DatasetError(f"{path}: {path.stat().st_size:,} bytes, expected at most {_HEADER_BYTES_AT_MOST:,}")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: not JSON ({error}); copy the dataset again") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise DatasetError(
            f"{path}: format is {found!r}, this version reads {FORMAT!r}; "
            "upgrade with `pip install --upgrade wellfeed`, or pack the source again"
        )
    header = _parse_header(path, content)
    if content.get("fingerprint") != header.fingerprint:
        raise DatasetError(
            f"{path}: fingerprint is {content.get('fingerprint')!r}, its content gives {header.fingerprint!r}; "
            "the file was changed after packing: copy the dataset again"
        )
    return header


def _parse_header(path: Path, content: dict[str, Any]) -> Header:
    try:
        header = Header(
            classes=tuple(content["classes"]),
            codec=content["codec"],
            align=content["align"],
            bucket_edges=tuple(content["bucket_edges"]),
            shards=tuple(Shard(**shard) for shard in content["shards"]),
            table_sha256=content["table_sha256"],
        )
    except (KeyError, TypeError) as error:
        raise DatasetError(f"{path}: a field is missing or of the wrong kind ({error}); copy it again") from error
    if problems := _header_problems(header):
        raise DatasetError(listing(str(path), problems, advice=_DISTRUST))
    return header


def _header_problems(header: Header) -> list[str]:
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


def _load_table(root: Path, header: Header) -> pa.Table:
    path = root / TABLE_NAME
    if not path.is_file():
        raise DatasetError(f"{path}: missing, though {HEADER_NAME} is there; copy it from where the dataset came from")
    content = path.read_bytes()
    if (found := hashlib.sha256(content).hexdigest()) != header.table_sha256:
        raise DatasetError(
            f"{path}: sha256 is {found[:12]}…, {HEADER_NAME} says {str(header.table_sha256)[:12]}…; "
            "the two do not belong together: copy both again"
        )
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        if not file.schema_arrow.equals(SCHEMA):
            raise DatasetError(
                f"{path}: columns are {file.schema_arrow.names}, expected {SCHEMA.names} with their types"
            )
        table = file.read()
        table.validate(full=True)
        return table
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path}: not Parquet ({error}); copy the dataset again") from error


def _table_problems(manifest: Manifest) -> list[str]:
    """What contradicts itself, one line per kind of problem, with the first sample that shows it."""
    header, table = manifest.header, manifest.table
    if nulls := [name for name in SCHEMA.names if table[name].null_count]:
        return [f"column {name} has empty cells" for name in nulls]
    if pc.list_flatten(table["class_pixels"]).null_count:
        return ["column class_pixels has empty counts"]
    if not len(table):
        return ["no sample, expected at least one"]
    are_keys = pc.match_substring_regex(table["key"], f"^({KEY_PATTERN})$")
    if len(strange := table["key"].filter(pc.invert(are_keys))):
        return [f"{strange[0].as_py()!r} cannot be a key, expected 1 to 80 of A-Z a-z 0-9 _ -"]
    if len(pc.unique(table["key"])) != len(table):
        return ["a key stands twice"]
    shard = manifest.column("shard")
    if len(astray := shard[(shard < 0) | (shard >= len(header.shards))]):
        return [f"a sample is in shard {astray[0]}, the header has {len(header.shards)}"]
    lengths = np.asarray(pc.list_value_length(table["class_pixels"]).to_numpy())
    if len(others := lengths[lengths != len(header.classes)]):
        return [f"class_pixels hold {others[0]} counts, expected {len(header.classes)}, one a class"]

    sizes = manifest.sizes.astype(np.int64)
    pixels = sizes.prod(axis=1)
    names = ("image_offset", "image_bytes", "mask_offset", "mask_bytes")
    image_offset, image_bytes, mask_offset, mask_bytes = spans = np.stack([manifest.column(name) for name in names])
    shard_split, shard_bucket, shard_size = (
        np.array([getattr(entry, name) for entry in header.shards])[shard] for name in ("split", "bucket", "size")
    )
    most = pixels + pixels // 8 + 4096  # bytes: no lossless codec of ours expands further
    next_header = -(-(image_offset + image_bytes) // 512) * 512  # tar's blocks; the mask's data is one further
    edges = np.array([-1, *header.bucket_edges], np.int64)
    bucket = manifest.column("bucket").clip(0, len(edges) - 2)
    claims = {
        f"claims a size out of range, at most {MAX_SAMPLE_PIXELS:,} pixels": (sizes < 1).any(axis=1)
        | (pixels > MAX_SAMPLE_PIXELS),
        # Each number by itself first: sums of what passes do not overflow.
        "claims members that lie outside its shard": ((spans < 0) | (spans > shard_size)).any(axis=0)
        | (mask_offset + mask_bytes > shard_size),
        "claims a mask that does not follow its image": mask_offset != next_header + 512,
        "claims members too large for its pixels": (image_bytes > most) | (mask_bytes > most),
        "claims an empty member": (image_bytes < 1) | (mask_bytes < 1),
        "has class_pixels that do not add up to its pixels": (
            (manifest.class_pixels < 0) | (manifest.class_pixels > pixels[:, None])
        ).any(axis=1)
        | (manifest.class_pixels.sum(axis=1) != pixels),
        "is in a bucket that does not hold its width": (bucket != manifest.column("bucket"))
        | (sizes[:, 1] <= edges[bucket])
        | (sizes[:, 1] > edges[bucket + 1]),
        "is not of its shard's split": np.asarray(table["split"]) != shard_split,
        "is not of its shard's bucket": manifest.column("bucket") != shard_bucket,
        "is not in shard order": np.append(np.diff(shard) < 0, False),
    }
    problems = [
        f"{_named(manifest, int(np.argmax(wrong)))} {claim}" + _and_more(int(wrong.sum()) - 1)
        for claim, wrong in claims.items()
        if wrong.any()
    ]
    counted = np.bincount(shard, minlength=len(header.shards))
    problems += [
        f"{entry.name} has {count:,} rows, the header says {entry.samples:,}"
        for entry, count in zip(header.shards, counted, strict=True)
        if count != entry.samples
    ]
    return problems


def _named(manifest: Manifest, row: int) -> str:
    height, width = manifest.sizes[row]
    return f"{manifest.text('key', [row])[0]} of {height:,} x {width:,} pixels"


def _and_more(count: int) -> str:
    return f", and so do {count:,} more" if count else ""
