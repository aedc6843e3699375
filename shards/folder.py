"""The source for a folder of scans: images and masks that pair by the stem of their file names."""

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from shards.errors import ConfigError, SourceError, listing
from shards.progress import Progress, silent
from shards.sample import MAX_SAMPLE_PIXELS, LogInfo, LogSample, Pixels, is_key

_TOO_DEEP = {"I", "F"}  # which of their values is white, nobody can say
_CLASS_MODES = {"1", "L", "P", "I", "I;16"}  # Pillow's modes with one number a pixel: what a mask can be


@dataclass(frozen=True, kw_only=True)
class FolderConfig:
    """Which files are scans, and what their masks mean."""

    images: str
    """Glob of the scans, such as 'scans/**/*.tif'."""
    masks: str
    """Glob of the masks. A mask belongs to the scan with the same file stem."""
    classes: int = 3
    """Number of classes, background included; a mask's pixels are 0 to classes - 1."""
    mask_threshold: int | None = None
    """Masks are grey pictures: pixels of at least this value are class 1, the others 0. Without it a mask's pixels
    are class ids."""
    group_regex: str = ".+"
    """What names the well in a file's stem: the expression's first group, or its whole match. By default every scan
    is a well of its own."""
    max_pixels: int = MAX_SAMPLE_PIXELS
    """Largest scan to accept; a larger one is refused before it is decoded."""

    def __post_init__(self) -> None:
        problems = []
        if not 2 <= self.classes <= 254:
            problems.append(f"classes is {self.classes}, expected 2 to 254")
        if self.mask_threshold is not None and self.classes != 2:
            problems.append(f"mask-threshold makes 2 classes, but classes is {self.classes}: add --classes 2")
        if self.mask_threshold is not None and not 1 <= self.mask_threshold <= 255:
            problems.append(f"mask-threshold is {self.mask_threshold}, expected 1 to 255")
        if not 1 <= self.max_pixels <= MAX_SAMPLE_PIXELS:
            problems.append(f"max-pixels is {self.max_pixels:,}, expected 1 to {MAX_SAMPLE_PIXELS:,}")
        try:
            re.compile(self.group_regex)
        except re.error as error:
            problems.append(f"group-regex {self.group_regex!r} is no regular expression: {error}")
        if problems:
            raise ConfigError(listing("folder", problems))


class FolderSource:
    """Pairs scans with masks, checks every pair, and loads them as grey image and class mask."""

    def __init__(self, root: Path, config: FolderConfig, progress: Progress = silent) -> None:
        self.root = root
        self.config = config
        self.conversions: Counter[str] = Counter()
        """What `scan` found that `load` will convert, and how often."""
        self._progress = progress
        self._pairs: dict[str, tuple[Path, Path]] = {}

    @property
    def classes(self) -> tuple[str, ...]:
        """Name of each class id."""
        return ("background", *(f"class {index}" for index in range(1, self.config.classes)))

    def scan(self) -> Sequence[LogInfo]:
        """Every pair, in the order of their keys. Reads the headers of the scans and all of every mask.

        Raises:
            SourceError: Partners are missing, sizes differ, a mask holds a class that is none; lists every problem.
        """
        self.conversions.clear()
        stems, problems = self._paired()
        infos = []
        for done, (stem, (image, mask)) in enumerate(sorted(stems.items()), start=1):
            try:
                infos.append(self._check(stem, image, mask))
            except SourceError as error:
                problems.append(str(error))
            self._progress("checking", done, len(stems))
        counts = Counter(info.key for info in infos)
        problems += [f"{count} files become the key {key}: rename them" for key, count in counts.items() if count > 1]
        if problems:
            raise SourceError(listing(str(self.root), problems, advice="nothing was written"))
        self._pairs = {_key(stem): pair for stem, pair in stems.items()}
        return infos

    def load(self, info: LogInfo) -> LogSample:
        """The pixels of a scanned pair."""
        image, mask = self._pairs[info.key]
        return LogSample(key=info.key, group=info.group, image=_grey(image), mask=self._classes_of(mask))

    def _paired(self) -> tuple[dict[str, tuple[Path, Path]], list[str]]:
        """Scans and masks by stem, and what does not pair."""
        config = self.config
        if not self.root.is_dir():
            raise SourceError(f"{self.root}: no such directory; name the folder that holds the scans")
        problems: list[str] = []
        images, masks = (_by_stem(self.root, glob, problems) for glob in (config.images, config.masks))
        if not images and not masks:
            raise SourceError(
                f"{self.root}: no file matches --images {config.images!r} or --masks {config.masks!r}; "
                "quote the globs, and use '**/*.png' to look into subfolders"
            )
        if both := set(images.values()) & set(masks.values()):
            raise SourceError(f"{min(both)} matches both --images and --masks; make the globs tell them apart")
        problems += [f"{images[stem]} has no mask" for stem in sorted(images.keys() - masks.keys())]
        problems += [f"{masks[stem]} has no image" for stem in sorted(masks.keys() - images.keys())]
        return {stem: (images[stem], masks[stem]) for stem in images.keys() & masks.keys()}, problems

    def _check(self, stem: str, image: Path, mask: Path) -> LogInfo:
        key = _key(stem)
        if not is_key(key):
            raise SourceError(f"{image}: {key!r} cannot be a key, expected 1 to 80 of A-Z a-z 0-9 _ -: rename the file")
        if key != stem:
            self.conversions["a dot or space in a name became _"] += 1
        match = re.search(self.config.group_regex, stem)
        group = match and (match[1] if match.re.groups else match[0])
        if not group:
            raise SourceError(f"{image}: its stem names no group by --group-regex {self.config.group_regex!r}")
        with _opened(image) as scan, _opened(mask) as classes:
            width, height = scan.size
            if width * height > self.config.max_pixels:
                raise SourceError(
                    f"{image}: {height:,} x {width:,} = {width * height:,} pixels, at most {self.config.max_pixels:,} "
                    "are accepted: cut the scan, or raise --max-pixels"
                )
            if classes.size != scan.size:
                raise SourceError(
                    f"{mask}: {classes.size[1]:,} x {classes.size[0]:,} pixels, its image has {height:,} x {width:,}"
                )
            mode = scan.mode
            if mode in _TOO_DEEP:
                raise SourceError(f"{image}: a {mode} picture, of unknown range: save it as 8 or 16 bits a pixel")
        self._classes_of(mask)
        if mode != "L":
            self.conversions[f"{mode} became grey"] += 1
        return LogInfo(
            key=key,
            group=group,
            height=height,
            width=width,
            source=image.relative_to(self.root).as_posix(),
        )

    def _classes_of(self, path: Path) -> Pixels:
        with _opened(path) as mask:
            if mask.mode not in _CLASS_MODES:
                raise SourceError(
                    f"{path}: a {mask.mode} picture, expected one class id a pixel: save the mask as grey"
                )
            # The grey of a 1-bit or palette picture is what its numbers stand for.
            coded = self.config.mask_threshold is not None and mask.mode in {"1", "P"}
            values = np.asarray(mask.convert("L") if coded else mask)
        if self.config.mask_threshold is not None:
            return (values >= self.config.mask_threshold).astype(np.uint8)
        lowest, highest = int(values.min()), int(values.max())
        if lowest < 0 or highest >= self.config.classes:
            raise SourceError(
                f"{path}: class {lowest if lowest < 0 else highest}, expected 0 to {self.config.classes - 1}: "
                "raise --classes, or give --mask-threshold if the mask is a grey picture"
            )
        return values.astype(np.uint8)


def _by_stem(root: Path, glob: str, problems: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    try:
        paths = sorted(path for path in root.glob(glob) if path.is_file())
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(f"glob {glob!r}: {error}; give a pattern relative to {root}") from error
    for path in paths:
        if path.stem in found:
            problems.append(f"{path} has the stem of {found[path.stem]}")
        found[path.stem] = path
    return found


def _key(stem: str) -> str:
    return re.sub(r"[. ]", "_", stem)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """A picture, its errors in one line. The pixel limit is ours to check, so Pillow's warning is not needed."""
    try:
        with (
            warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning),
            Image.open(path) as image,
        ):
            yield image
    except Image.DecompressionBombError as error:
        raise SourceError(f"{path}: larger than Pillow opens ({str(error).rstrip('.')}): cut the scan") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise SourceError(f"{path}: not a picture that Pillow reads ({error}); replace or remove it") from error


def _grey(path: Path) -> Pixels:
    """A scan as uint8 grey: 16 bits keep the upper 8, transparency shows white paper."""
    with _opened(path) as image:
        if image.mode.startswith("I"):
            return (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
        if image.has_transparency_data:
            paper = Image.new("RGBA", image.size, "white")
            paper.alpha_composite(image.convert("RGBA"))
            return np.asarray(paper.convert("L"))
        return np.asarray(image.convert("L"))
