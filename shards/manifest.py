"""What a dataset is: a header, `manifest.json`, and a row per sample, `samples.parquet`. How both are written."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from shards.codecs import CodecName
from shards.geometry import Rows, Sizes
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
