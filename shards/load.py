"""From the files of a dataset to its manifest. Both are input from strangers: what is wrong is found here or never."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shards.claims import header_problems, table_problems
from shards.errors import DatasetError, listing
from shards.manifest import FORMAT, HEADER_NAME, SCHEMA, TABLE_NAME, Header, Manifest, Shard

_DISTRUST = "the dataset is not to be trusted: pack or copy it again"
_HEADER_BYTES_AT_MOST = 2**26  # a quarter of a million shards; a larger header is no header of ours
_ROWS_AT_MOST = 2**24  # a hundred times the largest archive we know of


def load_manifest(root: Path | str) -> Manifest:
    """Load and check a dataset's header and table; no shard is opened.

    Raises:
        DatasetError: There is no dataset, its version is unknown, or it contradicts itself; lists every problem.
    """
    root = Path(root)
    header = _load_header(root)
    table = _load_table(root, header)
    manifest = Manifest(root, header, table)
    if problems := table_problems(manifest):
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
    if problems := header_problems(header):
        raise DatasetError(listing(str(path), problems, advice=_DISTRUST))
    return header


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
        claimed = sum(shard.samples for shard in header.shards)
        if file.metadata.num_rows != claimed or claimed > _ROWS_AT_MOST:
            raise DatasetError(
                f"{path}: {file.metadata.num_rows:,} rows, {HEADER_NAME} says {claimed:,}, at most {_ROWS_AT_MOST:,} "
                "are read; copy the dataset again"
            )
        table = file.read()
        table.validate(full=True)
        return table
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path}: not Parquet ({error}); copy the dataset again") from error
