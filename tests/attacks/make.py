"""Makes the hostile files beside it: `python tests/attacks/make.py`. They are committed; nothing else runs this.

Each function is one way to be wrong, named as its folder; its docstring says what was done. All start from one good
dataset of two small logs. Where a stranger would recompute hashes and fingerprints, so does this, with the library's
own functions: then only a look at the data itself can find the lie.
"""

import shutil
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from PIL import Image

from shards.codecs import CodecName
from shards.load import load_manifest
from shards.manifest import HEADER_NAME, TABLE_NAME, save_manifest, save_table
from shards.pack import PackConfig, pack
from shards.synthetic import SyntheticConfig, SyntheticSource
from shards.writer import ShardWriter

HERE = Path(__file__).parent
SHARD = "train-b00-000000.tar"
KEY = "log_000000"
"""The sample that is damaged, wherever one is."""


def good_dataset(out: Path, codec: CodecName = "zstd") -> Path:
    """Two logs of at most 48 x 64 pixels in one shard: what every attack starts from."""
    logs = SyntheticConfig(count=2, width=(40, 64), height=(33, 48), noise="clean")
    pack(SyntheticSource(logs), out, PackConfig(codec=codec, buckets=1))
    return out


def truncated_tar(root: Path) -> None:
    """The copy of a shard stopped inside its last sample."""
    content = (root / SHARD).read_bytes()
    last = load_manifest(root).table.to_pylist()[-1]
    (root / SHARD).write_bytes(content[: last["mask_offset"] + 10])


def flipped_byte(root: Path) -> None:
    """One byte of an image turned over on the disk."""
    flip(root, row_of(root, KEY))


def flipped_byte_png(root: Path) -> None:
    """One byte of a PNG image turned over on the disk."""
    flip(root, row_of(root, KEY))


def newer_version(root: Path) -> None:
    """The manifest is of a format that is yet to come."""
    path = root / HEADER_NAME
    path.write_text(path.read_text().replace("wellfeed/1", "wellfeed/2"))


def path_outside(root: Path) -> None:
    """The manifest names a shard outside the dataset; the fingerprint is right."""
    recommit(root, shard={"name": "../../../../etc/passwd"})


def class_seven_inside(root: Path) -> None:
    """A mask in a shard holds class 7 of 3; every hash, size and count is right."""
    row = row_of(root, KEY)
    mask = np.zeros((row["height"], row["width"]), np.uint8)
    mask[0, :5] = 7
    frame = zstandard.ZstdCompressor(write_checksum=True).compress(mask.tobytes())
    repack(root, {f"{KEY}.mask.zst": frame})


def sizes_disagree(root: Path) -> None:
    """The manifest says that a sample is one row taller than its image; its counts and hashes agree with the lie."""
    row = row_of(root, KEY)
    counts = [row["class_pixels"][0] + row["width"], *row["class_pixels"][1:]]
    recommit(root, row={"height": row["height"] + 1, "class_pixels": counts})


def sides_swapped(root: Path) -> None:
    """The manifest swaps a sample's height and width, so the pixels are as many; every hash is right."""
    row = row_of(root, KEY)
    recommit(root, row={"height": row["width"], "width": row["height"]})


def absurd_sample(root: Path) -> None:
    """The manifest claims a sample of 60,000 x 60,000 pixels; its counts, bucket and hashes agree with the claim."""
    claims = {"height": 60_000, "width": 60_000, "class_pixels": [60_000 * 60_000, 0, 0]}
    recommit(root, row=claims, bucket_edges=(60_000,))


def absurd_gap(root: Path) -> None:
    """The manifest puts a mask 64 TiB behind its image, in a shard it says is as large: one read would span both."""
    recommit(root, row={"mask_offset": 2**46}, shard={"size": 2**47})


def foreign_table(root: Path) -> None:
    """The table is of another dataset."""
    with tempfile.TemporaryDirectory() as other:
        shutil.copy(good_dataset(Path(other) / "other", "png") / TABLE_NAME, root / TABLE_NAME)


def missing_table(root: Path) -> None:
    """The table was not copied."""
    (root / TABLE_NAME).unlink()


def huge_frame(root: Path) -> None:
    """A zstd frame in a shard claims 2**50 bytes of content; every hash is right."""
    magic, descriptor, window = b"\x28\xb5\x2f\xfd", 0b11_0_0_0_1_00, 0  # 8-byte content size, a checksum, 1 KiB
    endless = struct.pack("<I", 1 << 3 | 0b01 << 1 | 1)[:3] + b"\0" + bytes(4)
    repack(root, {f"{KEY}.image.zst": magic + bytes([descriptor, window]) + struct.pack("<Q", 2**50) + endless})


def huge_png(root: Path) -> None:
    """A PNG in a shard claims 60,000 x 60,000 pixels; every hash is right."""
    repack(root, {f"{KEY}.image.png": bomb()})


def folder_class_seven(root: Path) -> None:
    """A folder of two scans; the mask of one holds class 7 of 3."""
    for name, highest in (("sound", 2), ("wrong", 7)):
        image, mask = np.full((40, 50), 200, np.uint8), np.zeros((40, 50), np.uint8)
        mask[20] = highest
        Image.fromarray(image).save(root / f"{name}.jpg")
        Image.fromarray(mask).save(root / f"{name}.png")


def folder_huge_scan(root: Path) -> None:
    """A folder with a scan whose header claims 60,000 x 60,000 pixels, in 70 bytes."""
    (root / "masks").mkdir()
    (root / "scan.png").write_bytes(bomb())
    Image.fromarray(np.zeros((40, 50), np.uint8)).save(root / "masks" / "scan.png")


FROM_ZSTD: tuple[Callable[[Path], None], ...] = (
    truncated_tar,
    flipped_byte,
    newer_version,
    path_outside,
    class_seven_inside,
    sizes_disagree,
    sides_swapped,
    absurd_sample,
    absurd_gap,
    foreign_table,
    missing_table,
    huge_frame,
)
FROM_PNG: tuple[Callable[[Path], None], ...] = (flipped_byte_png, huge_png)
FROM_NOTHING: tuple[Callable[[Path], None], ...] = (folder_class_seven, folder_huge_scan)


def row_of(root: Path, key: str) -> dict[str, Any]:
    """What the table says of a sample."""
    return next(row for row in load_manifest(root).table.to_pylist() if row["key"] == key)


def flip(root: Path, row: dict[str, Any]) -> None:
    """Turn over the byte in the middle of a sample's image."""
    content = bytearray((root / SHARD).read_bytes())
    content[row["image_offset"] + row["image_bytes"] // 2] ^= 0xFF
    (root / SHARD).write_bytes(content)


def recommit(
    root: Path, *, row: dict[str, Any] | None = None, shard: dict[str, Any] | None = None, **header: Any
) -> None:
    """Change the row of `KEY`, the shard's entry or the header, and make every hash right again."""
    manifest = load_manifest(root)
    rows = [known | (row or {}) if known["key"] == KEY else known for known in manifest.table.to_pylist()]
    table, digest = save_table(root, rows)
    shards = tuple(replace(entry, **(shard or {})) for entry in manifest.header.shards)
    changed = replace(manifest.header, table_sha256=digest, shards=shards, **header)
    save_manifest(replace(manifest, header=changed, table=table))


def repack(root: Path, payloads: dict[str, bytes]) -> None:
    """Write the shard with some members replaced, and make every offset and hash right again."""
    with tarfile.open(root / SHARD) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    places: dict[str, dict[str, int]] = {}
    with ShardWriter(root / SHARD) as writer:
        for name, payload in (members | payloads).items():
            key, part = name.split(".")[:2]
            place = {f"{part}_offset": writer.add(name, payload), f"{part}_bytes": len(payload)}
            if part != "json":
                places[key] = places.get(key, {}) | place
    manifest = load_manifest(root)
    table, digest = save_table(root, [row | places[row["key"]] for row in manifest.table.to_pylist()])
    size, sha256 = writer.digest.size, writer.digest.sha256
    shards = tuple(replace(entry, size=size, sha256=sha256) for entry in manifest.header.shards)
    save_manifest(replace(manifest, header=replace(manifest.header, table_sha256=digest, shards=shards), table=table))


def bomb() -> bytes:
    """A grey PNG whose header claims 60,000 x 60,000 pixels; its checksums are right, its pixels are not there."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def main() -> None:
    """Make them all anew."""
    for attacks, codec in ((FROM_ZSTD, "zstd"), (FROM_PNG, "png"), (FROM_NOTHING, None)):
        for attack in attacks:
            root = HERE / attack.__name__
            shutil.rmtree(root, ignore_errors=True)
            good_dataset(root, codec) if codec else root.mkdir()  # type: ignore[arg-type]
            attack(root)
            print(f"{attack.__name__}: {attack.__doc__}")


if __name__ == "__main__":
    main()
