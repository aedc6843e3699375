"""What a dataset says of itself: there and back, and a check for every way it may contradict itself."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shards.errors import DatasetError
from shards.load import load_manifest
from shards.manifest import HEADER_NAME, SCHEMA, TABLE_NAME, Manifest, save_manifest, save_table
from shards.pack import PackConfig, pack
from tests.shards.hand_made import HandMadeSource, log

LOGS = [log(f"log_{n}", height=8, width=16 + 40 * (n % 3 == 0)) for n in range(6)]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Six logs: buckets up to 32 and 64 px wide, two splits, so four shards at most."""
    pack(HandMadeSource(LOGS), tmp_path / "set", PackConfig(buckets=2, val_share=0.3))
    return tmp_path / "set"


def edit_header(root: Path, **fields: Any) -> None:
    """Write fields into the raw JSON, as an editor would."""
    path = root / HEADER_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def edit_shard(root: Path, **fields: Any) -> None:
    first, *rest = json.loads((root / HEADER_NAME).read_text())["shards"]
    edit_header(root, shards=[first | fields, *rest])


def recommit(root: Path, edit: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the table's rows and make its hash and the fingerprint right again."""
    manifest = load_manifest(root)
    rows = manifest.table.to_pylist()
    edit(rows)
    table, digest = save_table(root, rows)
    save_manifest(Manifest(root, replace(manifest.header, table_sha256=digest), table))


def problem_of(root: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        load_manifest(root)
    assert str(root) in str(caught.value)
    return str(caught.value)


def test_what_was_packed_is_what_is_loaded(tmp_path: Path) -> None:
    packed = pack(HandMadeSource(LOGS), tmp_path / "set", PackConfig())
    loaded = load_manifest(tmp_path / "set")
    assert loaded.header == packed.header
    assert loaded.header.fingerprint == packed.header.fingerprint
    assert loaded.table.equals(packed.table)
    assert loaded.table.schema.equals(SCHEMA)
    assert len(loaded) == len(LOGS)


def test_a_manifest_tells_sizes_classes_and_splits_as_arrays(dataset: Path) -> None:
    manifest = load_manifest(str(dataset))
    truth = {info.key: info for info in LOGS}
    keys = manifest.text("key", range(len(manifest)))
    assert sorted(keys) == sorted(truth)
    assert manifest.sizes.tolist() == [[truth[key].height, truth[key].width] for key in keys]
    masks = [HandMadeSource(LOGS).load(truth[key]).mask for key in keys]
    assert manifest.class_pixels.tolist() == [[int((mask == n).sum()) for n in range(3)] for mask in masks]
    train, val = manifest.rows("train"), manifest.rows("val")
    assert sorted([*train, *val]) == list(range(len(LOGS)))
    assert len(val) == 2


def test_the_fingerprint_is_of_everything_but_the_place(tmp_path: Path) -> None:
    one, same, other = (
        pack(HandMadeSource(LOGS[:count]), tmp_path / name, PackConfig()).header.fingerprint
        for name, count in (("one", 6), ("same", 6), ("other", 5))
    )
    assert one == same != other


HEADER_ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "no classes": ({"classes": []}, "classes are ()"),
    "one class": ({"classes": ["background"]}, "expected 2 to 254 names"),
    "a class that is no name": ({"classes": ["background", 7]}, "expected 2 to 254 names"),
    "a foreign codec": ({"codec": "lzma"}, "codec is 'lzma', this version reads zstd and png"),
    "a codec that is a list": ({"codec": ["zstd"]}, "codec is ['zstd']"),
    "align of nothing": ({"align": 0}, "align is 0"),
    "align that is a word": ({"align": "32"}, "align is '32'"),
    "align beyond int64": ({"align": 2**70}, f"align is {2**70}"),
    "edges that descend": ({"bucket_edges": [64, 32]}, "bucket_edges are (64, 32), expected ascending widths"),
    "edges that are words": ({"bucket_edges": ["32", "64"]}, "bucket_edges are ('32', '64')"),
    "edges beyond int64": ({"bucket_edges": [32, 2**70]}, "bucket_edges are"),
    "a field of the wrong kind": ({"bucket_edges": 5}, "a field is missing or of the wrong kind"),
    "shards of the wrong kind": ({"shards": [5]}, "a field is missing or of the wrong kind"),
    "another version": ({"format": "wellfeed/2"}, "format is 'wellfeed/2', this version reads 'wellfeed/1'"),
    "no version": ({"format": None}, "format is None"),
    "a changed class": ({"classes": ["background", "a", "b"]}, "the file was changed after packing"),
    "another fingerprint": ({"fingerprint": "0" * 32}, f"fingerprint is '{'0' * 32}'"),
}


@pytest.mark.parametrize("attack", HEADER_ATTACKS)
def test_a_header_is_refused_that_has(attack: str, dataset: Path) -> None:
    fields, told = HEADER_ATTACKS[attack]
    edit_header(dataset, **fields)
    assert told in problem_of(dataset)


SHARD_ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "a path upwards": ({"name": "../train-b00-000000.tar"}, "leaves the dataset"),
    "an absolute path": ({"name": "/etc/passwd"}, "leaves the dataset"),
    "a folder": ({"name": "a/b.tar"}, "leaves the dataset"),
    "a newline": ({"name": "train-b00-000000.tar\n"}, "leaves the dataset"),
    "a name that is a number": ({"name": 5}, "leaves the dataset"),
    "a name that is taken": ({"name": "val-b00-000000.tar"}, "a shard is named twice"),
    "a foreign split": ({"split": "test"}, "is of split 'test', expected train or val"),
    "a negative count": ({"samples": -1}, "that is no count"),
    "a size beyond int64": ({"size": 2**70}, "that is no count"),
    "a bucket that is a word": ({"bucket": "0"}, "that is no count"),
    "a hash that is a number": ({"sha256": 5}, "expected 64 hexadecimal digits"),
    "a field too many": ({"extra": 1}, "a field is missing or of the wrong kind"),
}


@pytest.mark.parametrize("attack", SHARD_ATTACKS)
def test_a_shard_s_entry_is_refused_that_has(attack: str, dataset: Path) -> None:
    fields, told = SHARD_ATTACKS[attack]
    edit_shard(dataset, **fields)
    assert told in problem_of(dataset)


def test_a_header_s_problems_are_all_listed(dataset: Path) -> None:
    edit_header(dataset, classes=["one"], align=-32, codec="lzma")
    edit_shard(dataset, name="..", split="all")
    problem = problem_of(dataset)
    assert problem.splitlines()[0].endswith("5 problems")
    for told in ("classes are", "align is", "codec is", "'..' leaves", "split 'all'"):
        assert told in problem


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 200_000, b"{}", b'{"format": []}'])
def test_a_header_that_is_no_header_is_refused(content: bytes, dataset: Path) -> None:
    (dataset / HEADER_NAME).write_bytes(content)
    assert HEADER_NAME in problem_of(dataset)


def test_a_header_larger_than_any_of_ours_is_not_read(dataset: Path) -> None:
    with (dataset / HEADER_NAME).open("r+b") as file:
        file.truncate(2**26 + 1)
    assert "67,108,865 bytes, expected at most 67,108,864" in problem_of(dataset)


def test_a_missing_field_is_named(dataset: Path) -> None:
    content = json.loads((dataset / HEADER_NAME).read_text())
    del content["codec"]
    (dataset / HEADER_NAME).write_text(json.dumps(content))
    assert "'codec'" in problem_of(dataset)


def set_first(**fields: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda rows: rows[0].update(fields)


def add_to_first(**amounts: int) -> Callable[[list[dict[str, Any]]], None]:
    return lambda rows: rows[0].update({name: rows[0][name] + amount for name, amount in amounts.items()})


def wrap_counts(rows: list[dict[str, Any]]) -> None:
    """Counts that add up only because int64 wraps around."""
    pixels = rows[0]["height"] * rows[0]["width"]
    rows[0]["class_pixels"] = [2**63 - 1, 2**63 - 1, pixels + 2]


TABLE_ATTACKS: dict[str, tuple[Callable[[list[dict[str, Any]]], None], str]] = {
    "an empty cell": (set_first(group=None), "column group has empty cells"),
    "an empty count": (set_first(class_pixels=[None, 1, 2]), "column class_pixels has empty counts"),
    "no rows": (lambda rows: rows.clear(), "0 rows, manifest.json says"),
    "a key twice": (lambda rows: rows[0].update(key=rows[1]["key"]), "a key stands twice"),
    "a key with a dot": (set_first(key="a.b"), "'a.b' cannot be a key"),
    "a key of two lines": (set_first(key="a\nb"), r"'a\nb' cannot be a key"),
    "a shard beyond the last": (set_first(shard=99), "a sample is in shard 99, the header has"),
    "a negative shard": (set_first(shard=-1), "a sample is in shard -1, the header has"),
    "two counts of three": (set_first(class_pixels=[1, 2]), "class_pixels hold 2 counts, expected 3, one a class"),
    "no height": (set_first(height=0), "of 0 x 16 pixels claims a size out of range"),
    "a negative size": (set_first(height=-8, width=-16), "claims a size out of range"),
    "an absurd size": (
        set_first(height=2**31 - 1, width=2**31 - 1),
        "of 2,147,483,647 x 2,147,483,647 pixels claims a size out of range, at most 134,217,728 pixels",
    ),
    "a negative offset": (set_first(image_offset=-512), "claims members that lie outside its shard"),
    "an image beyond the end": (add_to_first(image_offset=2**30, mask_offset=2**30), "lie outside its shard"),
    "offsets near the end of int64": (
        set_first(image_offset=2**63 - 300, mask_offset=-(2**63) + 1024),
        "lie outside its shard",
    ),
    "a mask beyond the end": (set_first(mask_bytes=10**9), "lie outside its shard"),
    "a mask before its image": (set_first(mask_offset=0), "claims a mask that does not follow its image"),
    "a gap before its mask": (add_to_first(mask_offset=512), "claims a mask that does not follow its image"),
    "an image larger than its pixels": (set_first(image_bytes=5000), "claims members too large for its pixels"),
    "an empty image": (set_first(image_bytes=0), "claims an empty member"),
    "an empty mask": (set_first(mask_bytes=0), "claims an empty member"),
    "a negative count": (set_first(class_pixels=[-1, 100, 29]), "class_pixels that do not add up to its pixels"),
    "a count too many": (set_first(class_pixels=[100, 20, 9]), "class_pixels that do not add up to its pixels"),
    "counts that wrap around": (wrap_counts, "class_pixels that do not add up to its pixels"),
    "a width beyond its bucket": (
        set_first(width=33, class_pixels=[264, 0, 0]),
        "in a bucket that does not hold its width",
    ),
    "a bucket that is none": (set_first(bucket=7), "in a bucket that does not hold its width"),
    "another bucket than its shard": (set_first(bucket=1), "is not of its shard's bucket"),
    "another split than its shard": (set_first(split="val"), "is not of its shard's split"),
    "a foreign split": (set_first(split="test"), "is not of its shard's split"),
    "rows in another order": (lambda rows: rows.reverse(), "is not in shard order"),
    "a row too few": (lambda rows: rows.__delitem__(-1), "rows, manifest.json says"),
}


@pytest.mark.parametrize("attack", TABLE_ATTACKS)
def test_a_table_is_refused_that_has(attack: str, dataset: Path) -> None:
    edit, told = TABLE_ATTACKS[attack]
    recommit(dataset, edit)
    problem = problem_of(dataset)
    assert told in problem
    assert TABLE_NAME in problem


def test_a_table_s_problems_are_counted_with_the_first_that_shows_them(dataset: Path) -> None:
    def edit(rows: list[dict[str, Any]]) -> None:
        for row in rows[:3]:
            row["height"] = 0
        rows[4]["mask_bytes"] = 0

    recommit(dataset, edit)
    problem = problem_of(dataset)
    first, fifth = load_keys(dataset)[0], load_keys(dataset)[4]
    assert f"{first} of 0 x 16 pixels claims a size out of range" in problem
    assert "and so do 2 more" in problem
    assert f"{fifth} of 8 x" in problem


def load_keys(root: Path) -> list[str]:
    return [str(key) for key in pq.read_table(root / TABLE_NAME)["key"].to_pylist()]


def test_a_table_of_another_dataset_is_refused(dataset: Path, tmp_path: Path) -> None:
    pack(HandMadeSource(LOGS[:3]), tmp_path / "other", PackConfig())
    (dataset / TABLE_NAME).write_bytes((tmp_path / "other" / TABLE_NAME).read_bytes())
    assert "the two do not belong together" in problem_of(dataset)


def commit_file(root: Path, content: bytes) -> None:
    """Put any bytes in the table's place and make the header say so."""
    manifest = load_manifest(root)
    (root / TABLE_NAME).write_bytes(content)
    save_manifest(replace(manifest, header=replace(manifest.header, table_sha256=hashlib.sha256(content).hexdigest())))


@pytest.mark.parametrize("damage", ["junk", "cut", "flipped"])
def test_a_table_that_is_no_parquet_is_refused(damage: str, dataset: Path) -> None:
    content = (dataset / TABLE_NAME).read_bytes()
    half = len(content) // 2
    damaged = {"junk": b"junk", "cut": content[:half], "flipped": content[: -half // 2] + b"\xff" * 40 + content[-20:]}
    commit_file(dataset, damaged[damage])
    assert "not Parquet" in problem_of(dataset)


def test_a_table_with_other_columns_is_refused(dataset: Path) -> None:
    pq.write_table(pa.table({"key": ["a"], "height": [1]}), dataset / "other.parquet")
    commit_file(dataset, (dataset / "other.parquet").read_bytes())
    assert "columns are ['key', 'height'], expected ['key', 'group'" in problem_of(dataset)


def test_text_that_is_no_utf_8_is_refused(dataset: Path) -> None:
    table = load_manifest(dataset).table
    broken = pa.array([b"\xff\xfe"] * len(table), pa.binary()).view(pa.string())
    pq.write_table(table.set_column(SCHEMA.get_field_index("source"), "source", broken), dataset / "other.parquet")
    commit_file(dataset, (dataset / "other.parquet").read_bytes())
    assert "not Parquet" in problem_of(dataset)


def test_sizes_are_int32_pixels_as_height_and_width(dataset: Path) -> None:
    sizes = load_manifest(dataset).sizes
    assert sizes.dtype == np.int32
    assert sizes.shape == (6, 2)
    assert np.all(sizes[:, 0] == 8)
