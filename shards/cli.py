"""`pack-shards`: make, look into and check datasets. Parses, calls the library once, prints its record."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from shards.folder import FolderConfig, FolderSource
from shards.geometry import CLUSTER
from shards.load import load_manifest
from shards.manifest import Manifest
from shards.pack import PackConfig, pack
from shards.preview import Panel, bare, contact_sheet, painted
from shards.reader import ShardReader
from shards.sample import LogSource
from shards.summary import Summary, summarise
from shards.synthetic import SyntheticConfig, SyntheticSource
from shards.terminal import Bar, run
from shards.verify import verify

_PREVIEWED = 8  # logs on a contact sheet


@dataclass(frozen=True)
class Synthetic:
    """Pack synthetic well logs with exact masks.

    Example: pack-shards synthetic runs/logs --count 1000 --noise mid
    """

    out: Annotated[Positional[Path], arg(metavar="OUT")]
    """Directory of the new dataset."""
    logs: OmitArgPrefixes[SyntheticConfig]
    packing: OmitArgPrefixes[PackConfig] = field(default_factory=PackConfig)

    def __call__(self) -> int:
        """Pack, and print what came out."""
        with Bar() as bar:
            return _pack(SyntheticSource(self.logs), self.out, self.packing, bar)


@dataclass(frozen=True)
class Folder:
    """Pack a folder of scans and their masks, paired by file stem.

    Example: pack-shards folder scans runs/scans --images '*.jpg' --masks '*.png' --mask-threshold 128 --classes 2
    """

    root: Annotated[Positional[Path], arg(metavar="IN")]
    """Folder that both globs start from."""
    out: Annotated[Positional[Path], arg(metavar="OUT")]
    """Directory of the new dataset."""
    scans: OmitArgPrefixes[FolderConfig]
    packing: OmitArgPrefixes[PackConfig] = field(default_factory=PackConfig)

    def __call__(self) -> int:
        """Pack, and print what was converted and what came out."""
        with Bar() as bar:
            source = FolderSource(self.root, self.scans, bar)
            status = _pack(source, self.out, self.packing, bar)
        for conversion, count in source.conversions.items():
            print(f"{conversion}: {count:,} files")
        return status


@dataclass(frozen=True)
class Inspect:
    """Show what a dataset holds, from its manifest alone.

    Example: pack-shards inspect runs/logs --preview preview.png
    """

    dataset: Annotated[Positional[Path], arg(metavar="DATASET")]
    """Directory of the dataset."""
    preview: Path | None = None
    """Also write a contact sheet of a few logs with their masks to this PNG file."""

    def __call__(self) -> int:
        """Print the tables."""
        manifest = load_manifest(self.dataset)
        _print_summary(manifest, summarise(manifest))
        if self.preview:
            _save_preview(manifest, self.preview)
            print(f"contact sheet: {self.preview}")
        return 0


@dataclass(frozen=True)
class Verify:
    """Read every byte of a dataset; one line per problem, and exit status 1 if there is any.

    Example: pack-shards verify runs/logs
    """

    dataset: Annotated[Positional[Path], arg(metavar="DATASET")]
    """Directory of the dataset."""

    def __call__(self) -> int:
        """Print every problem."""
        with Bar() as bar:
            problems = verify(self.dataset, bar)
        for problem in problems:
            print(problem, file=sys.stderr)
        if problems:
            return 1
        manifest = load_manifest(self.dataset)
        shards = manifest.header.shards
        size = _bytes(sum(shard.size for shard in shards))
        print(f"{self.dataset}: {len(manifest):,} samples in {len(shards):,} shards, {size}: whole")
        return 0


Verb = (
    Annotated[Synthetic, subcommand("synthetic")]
    | Annotated[Folder, subcommand("folder")]
    | Annotated[Inspect, subcommand("inspect")]
    | Annotated[Verify, subcommand("verify")]
)


def main(args: Sequence[str] | None = None) -> int:
    """Entry point of `pack-shards`."""

    def command() -> int:
        verb: Synthetic | Folder | Inspect | Verify = tyro.cli(
            Verb,
            prog="pack-shards",
            args=args,
            description="Make datasets of images that have no common shape, look into them, and check them.\n\n"
            "Example: pack-shards synthetic runs/logs --count 1000",
        )
        return verb()

    return run(command)


def _pack(source: LogSource, out: Path, config: PackConfig, bar: Bar) -> int:
    manifest = pack(source, out, config, bar)
    raw = int(manifest.sizes.astype(np.int64).prod(axis=1).sum()) * 2  # image and mask, a byte a pixel each
    size = sum(shard.size for shard in manifest.header.shards)
    print(
        f"{out}: {len(manifest):,} samples in {len(manifest.header.shards):,} shards, "
        f"{_bytes(size)} ({size / raw:.0%} of the pixels' {_bytes(raw)})"
    )
    return 0


def _print_summary(manifest: Manifest, summary: Summary) -> None:
    console = Console(markup=False, emoji=False)  # names of classes and paths are not ours to interpret
    table = Table("split", "bucket", "widest, px", "shards", "samples", "Mpx", "bytes", title=str(manifest.root))
    for column in table.columns[1:]:
        column.justify = "right"
    for entry in summary.buckets:
        table.add_row(
            entry.split,
            str(entry.bucket),
            f"{entry.widest:,}",
            f"{entry.shards:,}",
            f"{entry.samples:,}",
            f"{entry.pixels / 1e6:,.1f}",
            _bytes(entry.size),
        )
    console.print(table)
    facts = Table(show_header=False, box=None)
    for name, quantiles in (("height", summary.height_quantiles), ("width", summary.width_quantiles)):
        facts.add_row(f"{name}, px", " · ".join(f"{value:,}" for value in quantiles) + "  (0, 25, 50, 75, 100 %)")
    facts.add_row("classes", " · ".join(f"{name} {share:.2%}" for name, share in summary.class_shares.items()))
    padding = summary.padding
    facts.add_row(
        f"padding, batches of {CLUSTER}",
        f"planned {padding.planned.share:.1%} · floor {padding.floor.share:.1%} · random {padding.random.share:.1%}",
    )
    console.print(facts)


def _save_preview(manifest: Manifest, path: Path) -> None:
    reader = ShardReader(manifest)
    chosen = np.unique(np.linspace(0, len(manifest) - 1, _PREVIEWED).astype(int))
    rows = []
    for row in chosen:
        sample = reader.read(int(row))
        height, width = sample.image.shape
        panels = [Panel("scan", bare(sample.image)), Panel("mask", painted(sample.image, sample.mask))]
        rows.append((f"{sample.key}  {height:,} x {width:,} px", panels))
    path.parent.mkdir(parents=True, exist_ok=True)
    contact_sheet(rows).save(path, "PNG")


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


if __name__ == "__main__":
    sys.exit(main())
