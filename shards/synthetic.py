"""Synthetic scanned well logs: paper, grid, print, traces that cross and wrap, and the scanner's defects.

Sample i depends on (seed, i) alone: its size on a hash of both, all else on `default_rng((seed, i))`. So any process
draws any sample, in any order, a larger `count` only adds samples, and the three noises scan the same log. Lengths
follow the height (grid, pen, type): a log a tenth as tall is a small log and not a shrunken one; nothing here resizes.

A pixel is written 3 (clean) to 9 (noisy) times, always as uint8; what costs more (gathers, arithmetic on indices)
touches only the traces, 3 % of the pixels. One core, full size, image and mask: 260 MP/s clean, 195 mid, 170 noisy.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, final, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from shards.errors import ConfigError, listing
from shards.sample import MAX_SAMPLE_PIXELS, LogInfo, LogSample, Pixels

Noise = Literal["clean", "mid", "noisy"]

_Ints = NDArray[np.int64]
_Rng = np.random.Generator

_LOGS_PER_WELL = 4  # consecutive logs share a well, so that a split by group has something to keep together
_INK = (40, 112)  # grey of curve 1 and of curve 2, as far from each other as from the grid
_PRINT = 70  # grey of printed labels
_NAMES = ("GR", "SP", "CALI", "ILD", "SFLU", "RHOB", "NPHI", "DT")
_TYPE = "0123456789" + "".join(sorted(set("".join(_NAMES))))

# Settled together: of 60 full-size logs every one crosses and wraps, and 96.4 to 97.3 % of each is background.
_BED = 40  # px, mean thickness of a bed; levels vary by _CONTRAST track widths
_CONTRAST = 0.14
_WANDER = (500, 0.45)  # a random walk: every so many px by so many track widths
_TOOL = np.hanning(17)[1:-1] / 8  # the weight of each px around the tool: beds thinner than 15 px blur
_WIGGLE = 0.02  # track widths, the tool's own statistics

_GRAIN_SEED = 20_240_607  # any constant: the bank must only be the same in every process
_GRAIN_BANK = 2**20  # bytes: stays in cache, and two windows of it added at random offsets do not repeat in an image
_GRAIN_RUN = 2**16  # pixels that share two windows


@dataclass(frozen=True, kw_only=True)
class SyntheticConfig:
    """Which synthetic logs to draw. Sample i is the same for every `count`."""

    count: int
    """How many logs."""
    classes: Literal[2, 3] = 3
    """2: background and one curve; 3: background and two curves."""
    width: tuple[int, int] = (3200, 12800)
    """Narrowest and widest log, inclusive, in pixels: the direction of depth."""
    height: tuple[int, int] = (480, 640)
    """Lowest and tallest log, inclusive, in pixels: the direction of the tracks."""
    seed: int = 0
    """Another seed, other logs."""
    noise: Noise = "mid"
    """How bad the scan is: `clean` has no defect; `mid` grain, skew, bleed and gaps; `noisy` more, and stains."""

    def __post_init__(self) -> None:
        problems = []
        if self.count < 1:
            problems.append(f"count is {self.count:,}; ask for at least 1 log")
        if self.classes not in (2, 3):
            problems.append(f"classes is {self.classes}; 2 draws one curve on the background, 3 draws two")
        for side, (low, high) in (("width", self.width), ("height", self.height)):
            if not 1 <= low <= high:
                problems.append(f"{side} is {low:,} to {high:,}; give LO HI with 1 <= LO <= HI")
        if self.width[1] * self.height[1] > MAX_SAMPLE_PIXELS:
            largest = f"{self.height[1]:,} x {self.width[1]:,}"
            problems.append(f"the largest log would be {largest}; keep it within {MAX_SAMPLE_PIXELS:,} pixels")
        if self.seed < 0:
            problems.append(f"seed is {self.seed}; use 0 or more")
        if self.noise not in _DEFECTS:
            problems.append(f"noise is {self.noise!r}; choose one of {', '.join(get_args(Noise))}")
        if problems:
            raise ConfigError(listing("cannot draw synthetic logs", problems))


@final
class SyntheticSource:
    """A LogSource that draws its logs. Holds nothing but its config, so threads and processes may share it."""

    def __init__(self, config: SyntheticConfig) -> None:
        self.config = config

    @property
    def classes(self) -> tuple[str, ...]:
        """Name of each class id."""
        return ("background", "curve 1", "curve 2")[: self.config.classes]

    def scan(self) -> list[LogInfo]:
        """Every log's key, well and size; no pixel is drawn."""
        config = self.config
        widths = _drawn_sizes(config.seed, 0, config.count, config.width).tolist()
        heights = _drawn_sizes(config.seed, 1, config.count, config.height).tolist()
        return [
            LogInfo(
                key=f"log_{index:06d}",
                group=f"well_{index // _LOGS_PER_WELL:06d}",
                height=height,
                width=width,
                source=f"synthetic seed {config.seed} index {index}",
            )
            for index, (height, width) in enumerate(zip(heights, widths, strict=True))
        ]

    def load(self, info: LogInfo) -> LogSample:
        """Draw one log. The mask is the true trace: where a gap or a stain hides the ink, the mask still has it."""
        rng = np.random.default_rng((self.config.seed, int(info.key.removeprefix("log_"))))
        defects = _DEFECTS[self.config.noise]
        layout = _layout(info.height, rng)
        drift = _drift(info.width, round(defects.drift * info.height), rng)
        traces = [_trace(number, layout, drift, rng) for number in range(1, self.config.classes)]
        image, paper = _printed(info.width, layout, defects, rng)
        _skew(image, drift)
        _shade(image, paper, defects, rng)
        mask = np.zeros_like(image)
        for trace in reversed(traces):  # curve 1 last: it lies on top
            _ink(image, mask, trace, paper, defects, rng)
        _grain(image, defects, rng)
        return LogSample(key=info.key, group=info.group, image=image, mask=mask)


@dataclass(frozen=True, kw_only=True)
class _Defects:
    """How a scan differs from the print. The numbers were settled by eye, on logs of both scales."""

    drift: float  # farthest a horizontal line wanders, as a share of the height
    bleed: float  # share of a line's darkness that its neighbours take on
    gaps: float  # gaps in each curve's ink per 1,000 px of width, each up to gap_px long
    gap_px: int
    fade: int  # grey levels by which the pen's pressure varies
    shade: int  # grey levels by which light and folds darken the paper; stains darken it three times that
    grain: float  # standard deviation of the scanner's noise, grey levels

    @property
    def peak(self) -> int:
        """Most the grain adds or takes. All tones drawn keep that far from 0 and 255, so adding it never wraps."""
        return 2 * _bank_peak(self.grain)


def _bank_peak(grain: float) -> int:
    return round(2 * grain)  # two windows are added: 2.8 of each one's deviations


_DEFECTS = {
    "clean": _Defects(drift=0, bleed=0, gaps=0, gap_px=1, fade=0, shade=0, grain=0),
    "mid": _Defects(drift=1 / 110, bleed=0.25, gaps=2, gap_px=8, fade=15, shade=0, grain=2),
    "noisy": _Defects(drift=1 / 60, bleed=0.45, gaps=5, gap_px=20, fade=35, shade=10, grain=6.5),
}


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Where things stand on the paper, in rows; columns only have a spacing."""

    height: int
    strip: tuple[int, int]  # the depth strip: its first row, and the one after its last; the same where it has no room
    tracks: tuple[int, ...]  # first row of each track, top to bottom, and the row after the last
    fine: int  # pixels between depth lines of the fine grid; every fifth is coarse
    pen: int  # thickness of lines that matter, 1 to 3 px


@dataclass(frozen=True, kw_only=True)
class _Trace:
    """One curve: in each column one run of rows, counted from `top`; beyond `span` it wraps."""

    number: int  # its class id
    low: _Ints  # first row of each column's run, before wrapping, [W]
    high: _Ints  # last row, [W]
    top: _Ints  # first row of its tracks, after the paper slipped, [W]
    span: int  # rows of its tracks


def _drawn_sizes(seed: int, lane: int, count: int, limits: tuple[int, int]) -> _Ints:
    """One uniform size per index, [N]: splitmix64 of (seed, lane, index), so no index needs another.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    stream = _mixed(np.array([(2 * seed + lane) % 2**64], np.uint64))
    indices = np.arange(1, count + 1, dtype=np.uint64)
    hashes = _mixed(stream + indices * np.uint64(0x9E3779B97F4A7C15))
    return limits[0] + (hashes % np.uint64(limits[1] - limits[0] + 1)).astype(np.int64)


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _layout(height: int, rng: _Rng) -> _Layout:
    """Divide the height: margins wider than any drift, a depth strip at one of them, one to three tracks."""
    margin = round(height / 60) + 1 if height >= 40 else 0
    strip = max(9, round(0.08 * height)) if height >= 40 else 0
    on_top = bool(rng.random() < 0.5)
    top = margin + strip * on_top
    bottom = height - margin - strip * (not on_top)
    tracks = np.linspace(top, bottom, min(max(height // 180, 1), 3) + 1).round().astype(int)
    return _Layout(
        height=height,
        strip=(margin, top) if on_top else (bottom, height - margin),
        tracks=tuple(tracks.tolist()),
        fine=max(6, round(height / 50 * rng.uniform(0.8, 1.3))),
        pen=min(max(round(height / 180), 1), 3),
    )


def _drift(width: int, most: int, rng: _Rng) -> _Ints:
    """Rows by which each column has slipped in the scanner: a tilt and a slow wave, never beyond `most`. [W]."""
    along = np.linspace(-1, 1, width)
    tilt, phase = rng.uniform(-0.7, 0.7), rng.uniform(0, 6.28)
    return (most * (tilt * along + 0.3 * np.sin(5 * along + phase))).round().astype(np.int64)


def _trace(number: int, layout: _Layout, drift: _Ints, rng: _Rng) -> _Trace:
    """Draw one curve's path: beds seen through the tool, wandering, with the tool's wiggle."""
    width, thickness = len(drift), max(layout.pen - (number - 1), 1)
    skipped = int(rng.integers(0, number)) if len(layout.tracks) > 2 else 0  # curve 2 may leave out the first track
    top, bottom = layout.tracks[skipped], layout.tracks[-1]
    thick = rng.geometric(1 / _BED, width // _BED * 2 + 10)
    beds = np.resize(np.repeat(rng.normal(0, _CONTRAST, len(thick)), thick), width + len(_TOOL) - 1)
    every, step = _WANDER
    walk = _wave(width, every, rng.normal(0, step, width // every + 2).cumsum())
    wiggle = np.convolve(rng.normal(0, _WIGGLE, width + 6), np.hanning(9)[1:-1] / 4, "valid")
    path = rng.random() + np.convolve(beds, _TOOL, "valid") + walk + wiggle
    rows = np.floor((bottom - top) * path).astype(np.int64)
    halfway = (rows[1:] + rows[:-1]) // 2  # neighbours share the row halfway, so the trace is connected
    before, after = np.append(rows[:1], halfway), np.append(halfway, rows[-1:])
    low, high = np.minimum(np.minimum(before, rows), after), np.maximum(np.maximum(before, rows), after)
    low, high = _swept(low, high, thickness)
    return _Trace(number=number, low=low, high=high, top=top + drift, span=bottom - top)


def _wave(width: int, every: int, knots: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values at each column, [W], on straight lines between `knots`, which are `every` px apart."""
    return np.interp(np.arange(width), every * np.arange(len(knots)), knots)


def _swept(low: _Ints, high: _Ints, pen: int) -> tuple[_Ints, _Ints]:
    """Sweep a square pen of `pen` px along one run per column."""
    before, after = (pen - 1) // 2, pen // 2
    window = np.lib.stride_tricks.sliding_window_view
    padded_low, padded_high = (np.pad(side, (after, before), "edge") for side in (low, high))
    return window(padded_low, pen).min(axis=1) - before, window(padded_high, pen).max(axis=1) + after


def _filled(low: _Ints, high: _Ints) -> tuple[_Ints, _Ints]:
    """All rows from `low` to `high` of each column, one column after the other; and the column of each."""
    lengths = high - low + 1
    columns = np.repeat(np.arange(len(low)), lengths)
    rows = np.arange(len(columns)) + np.repeat(low - (lengths.cumsum() - lengths), lengths)
    return rows, columns


def _ruled(length: int, paper: int, lines: list[tuple[_Ints, int, int]], bleed: float) -> Pixels:
    """Tone along one direction, [length], of paper with `lines`: positions, thickness, tone; the darkest last."""
    tones = np.full(length, paper, np.uint8)
    for positions, thickness, tone in lines:
        covered = (positions[:, None] + np.arange(thickness)).ravel()
        tones[covered[covered < length]] = tone
    padded = np.pad(tones, 1, "edge")
    darkest_beside = np.minimum(padded[2:], padded[:-2])
    return np.minimum(tones, np.round(paper - bleed * (paper - darkest_beside.astype(float))).astype(np.uint8))


def _printed(width: int, layout: _Layout, defects: _Defects, rng: _Rng) -> tuple[Pixels, int]:
    """The paper with its grid, depth strip and labels, and the paper's tone."""
    paper = 250 - defects.peak - int(rng.integers(0, 10))
    contrast = rng.uniform(0.7, 1.1)
    light, dark, frame = (round(paper - contrast * depth) for depth in (26, 52, 90))
    pen, fine = layout.pen, layout.fine
    (first, last), top, bottom = layout.strip, layout.tracks[0], layout.tracks[-1]
    every = np.arange(int(rng.integers(0, 5 * fine)) % max(width, 1), width, fine)
    depths = [(every, 1, light), (every[::5], max(pen - 1, 1), dark)]
    tracks = zip(layout.tracks[:-1], layout.tracks[1:], strict=True)
    divisions = [np.linspace(low, high, min(max((high - low) // 6, 1), 10), endpoint=False) for low, high in tracks]
    within = np.concatenate(divisions).astype(np.int64)
    edges = np.array([min(first, top), *layout.tracks[:-1], bottom - pen, max(last, bottom) - pen])
    across = [(within, 1, light), (edges, pen, frame)]
    image = np.empty((layout.height, width), np.uint8)
    rows, columns = _ruled(layout.height, paper, across, defects.bleed), _ruled(width, paper, depths, defects.bleed)
    ticks = _ruled(width, paper, [(every, 1, dark), (every[::5], pen, frame)], defects.bleed)
    tick = (last - first) // 6
    bands = [(top, bottom, columns), (first, first + tick, ticks), (last - tick, last, ticks)]
    image[:] = rows[:, None]
    for start, stop, band in bands:
        np.minimum(rows[start:stop, None], band, out=image[start:stop])
    _label(image, layout, every[::5], rng)
    return image, paper


def _label(image: Pixels, layout: _Layout, coarse: _Ints, rng: _Rng) -> None:
    """Print a depth at coarse lines and curve names in the tracks, wherever the type fits."""
    first, last = layout.strip
    size = min(max(round(0.5 * (last - first)), 10), 24)
    depth, step = 10 * int(rng.integers(30, 1500)), int(rng.choice([10, 50, 100]))
    stride = -(-4 * size // (5 * layout.fine))
    for number, column in enumerate(coarse[::stride].tolist()):
        _stamp(image, (first, last), column, str(depth + number * stride * step), size)
    for _ in range(1 + image.shape[1] // 1500):
        track = int(rng.integers(0, len(layout.tracks) - 1))
        top = layout.tracks[track] + round(rng.uniform(0, 0.7) * (layout.tracks[track + 1] - layout.tracks[track]))
        column, name = int(rng.integers(0, image.shape[1])), str(rng.choice(_NAMES))
        _stamp(image, (top, min(top + 2 * size, layout.tracks[track + 1])), column, name, size)


def _stamp(image: Pixels, band: tuple[int, int], column: int, text: str, size: int) -> None:
    """Print `text` centred in the rows of `band`, from `column` + 3 on, unless it does not fit."""
    type_ = _type(size)
    stamp = np.hstack([type_[letter] for letter in text])
    top = (band[0] + band[1] - stamp.shape[0]) // 2
    place = image[top : top + stamp.shape[0], column + 3 : column + 3 + stamp.shape[1]]
    if top >= band[0] and place.shape == stamp.shape:
        np.minimum(place, stamp, out=place)


@lru_cache(maxsize=32)
def _type(size: int) -> dict[str, Pixels]:
    """Each letter's tones, [rows, columns], white around: Pillow's own font, rendered once per size.

    Between versions of Pillow labels may differ; they draw no random number, so nothing else follows them.
    """
    font = ImageFont.load_default(size)
    top, bottom = (round(font.getbbox("0")[side]) for side in (1, 3))
    letters = {}
    for letter in _TYPE:
        canvas = Image.new("L", (round(font.getlength(letter)), bottom - top), 255)
        ImageDraw.Draw(canvas).text((0, -top), letter, font=font, fill=_PRINT)
        letters[letter] = np.asarray(canvas)
    return letters


def _skew(image: Pixels, drift: _Ints) -> None:
    """Move each run of columns by its drift. The margins are bare paper, so what rolls over is what belongs there."""
    turns = np.flatnonzero(np.diff(drift)) + 1
    for start, stop in zip([0, *turns.tolist()], [*turns.tolist(), len(drift)], strict=True):
        if drift[start]:
            image[:, start:stop] = np.roll(image[:, start:stop], drift[start], axis=0)


def _shade(image: Pixels, paper: int, defects: _Defects, rng: _Rng) -> None:
    """Darken the paper: uneven light along the width, shadow at the edges, and stains, about one per 3 heights."""
    if not defects.shade:
        return
    height, width = image.shape
    light = _wave(width, 400, rng.uniform(0, defects.shade, width // 400 + 2))
    shadow = defects.shade * np.linspace(-1, 1, height) ** 4
    np.subtract(image, light.astype(np.uint8), out=image)
    np.subtract(image, shadow.astype(np.uint8)[:, None], out=image)
    for _ in range(int(rng.poisson(width / height / 3))):
        radius = rng.uniform(0.1, 0.4) * height
        y, x = rng.uniform(0, height), rng.uniform(0, width)
        top, left = max(int(y - radius), 0), max(int(x - radius), 0)
        place = image[top : int(y + radius) + 1, left : int(x + radius) + 1]
        down, right = np.ogrid[top : top + place.shape[0], left : left + place.shape[1]]
        distance = (((down - y) / radius) ** 2 + ((right - x) / radius) ** 2).astype(np.float32)  # 1 at the rim
        tone = paper - 3 * defects.shade * np.clip(4 * (1 - distance), 0, 0.3 + 0.7 * distance**4)
        np.minimum(place, tone.astype(np.uint8), out=place)


def _ink(image: Pixels, mask: Pixels, trace: _Trace, paper: int, defects: _Defects, rng: _Rng) -> None:
    """Draw one curve into both. The image's ink fades, breaks and bleeds; the mask is where the pen went."""
    height, width = image.shape
    fading = _wave(width, 100, rng.uniform(0, defects.fade, width // 100 + 2))
    ink = (_INK[trace.number - 1] + fading).astype(np.uint8)
    starts = rng.integers(0, width, rng.poisson(defects.gaps * width / 1000))
    longest = min(defects.gap_px, height // 6 + 1)
    missing, _ = _filled(starts, starts + rng.integers(0, longest, len(starts)))
    ink[missing[missing < width]] = 255  # lighter than the paper: no ink
    halo = np.round(paper - defects.bleed * (paper - np.minimum(ink, paper).astype(float))).astype(np.uint8)
    if defects.bleed:
        _darken(image, *_places(*_swept(trace.low, trace.high, 3), trace), halo)
    places, columns = _places(trace.low, trace.high, trace)
    _darken(image, places, columns, ink)
    mask.reshape(-1)[places] = trace.number


def _places(low: _Ints, high: _Ints, trace: _Trace) -> tuple[_Ints, _Ints]:
    """Flat indices of the runs, wrapped into the trace's tracks and slipped like the paper; and their columns."""
    first = low % trace.span
    rows, columns = _filled(first, first + np.minimum(high - low, trace.span - 1))  # so a run wraps at most once
    np.subtract(rows, trace.span, out=rows, where=rows >= trace.span)
    return (rows + trace.top[columns]) * len(low) + columns, columns


def _darken(image: Pixels, places: _Ints, columns: _Ints, tones: Pixels) -> None:
    """Bring each place down to the tone of its column; darker ones stay."""
    flat = image.reshape(-1)
    flat[places] = np.minimum(flat[places], tones[columns])


def _grain(image: Pixels, defects: _Defects, rng: _Rng) -> None:
    """Add the scanner's noise: to each run of pixels two windows of one bank. uint8 wraps, so subtracting is adding."""
    if not defects.grain:
        return
    bank, flat = _grain_bank(defects.grain), image.reshape(-1)
    runs = range(0, flat.size, _GRAIN_RUN)
    for start, windows in zip(runs, rng.integers(0, _GRAIN_BANK - _GRAIN_RUN, (len(runs), 2)).tolist(), strict=True):
        run = flat[start : start + _GRAIN_RUN]
        for window in windows:
            run += bank[window : window + run.size]


@lru_cache(maxsize=4)
def _grain_bank(grain: float) -> Pixels:
    """Normal noise of which two windows add up to deviation `grain`, as uint8 modulo 256: the same in every process."""
    drawn = np.random.default_rng(_GRAIN_SEED).normal(0, grain / np.sqrt(2), _GRAIN_BANK)
    bank = np.clip(drawn.round(), -_bank_peak(grain), _bank_peak(grain)).astype(np.int8).view(np.uint8)
    bank.flags.writeable = False
    return bank
