"""Contact sheets: logs as they are, with class maps painted over them. Cropped, never resized."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from shards.sample import Pixels

_COLOURS = np.array(
    [(0, 0, 0), (230, 25, 75), (0, 110, 230), (60, 160, 60), (245, 130, 48), (145, 30, 180)], np.uint8
)  # background is never painted; after five classes the colours repeat
_CROP_HEIGHT, _CROP_WIDTH = 640, 1280  # pixels of each log shown: a whole height, a screen's width
_WIDE = 3  # widths per height from which a log's panels stand one above the other
_GAP, _CAPTION = 8, 22  # pixels


@dataclass(frozen=True, eq=False)
class Panel:
    """One picture of a log."""

    title: str
    pixels: NDArray[np.uint8]
    """uint8 [H, W, 3]."""


SheetRow = tuple[str, Sequence[Panel]]
"""A caption, and the pictures of one log."""


def bare(image: Pixels) -> NDArray[np.uint8]:
    """A grey image [H, W] as a picture [H, W, 3]."""
    return np.repeat(image[..., None], 3, axis=2)


def painted(image: Pixels, classes: Pixels) -> NDArray[np.uint8]:
    """A grey image [H, W] in colour [H, W, 3], its foreground classes painted over it."""
    colours = _COLOURS[np.where(classes > 0, (classes - 1) % (len(_COLOURS) - 1) + 1, 0)]
    # Halfway to white, so that the traces stand out on dark scans too.
    faded = (128 + image // 2)[..., None]
    return np.where((classes > 0)[..., None], colours, faded)


def contact_sheet(rows: Sequence[SheetRow]) -> Image.Image:
    """One sheet: a row per log, with its caption; wide logs have their panels one above the other."""
    return _stacked([_row(caption, panels) for caption, panels in rows], vertical=True)


def _row(caption: str, panels: Sequence[Panel]) -> Image.Image:
    pictures = [_titled(panel.title, panel.pixels[:_CROP_HEIGHT, :_CROP_WIDTH]) for panel in panels]
    height, width = panels[0].pixels.shape[:2]
    return _stacked([_label(caption), _stacked(pictures, vertical=width > _WIDE * height)], vertical=True)


def _titled(title: str, pixels: NDArray[np.uint8]) -> Image.Image:
    return _stacked([Image.fromarray(np.ascontiguousarray(pixels)), _label(title, grey=110)], vertical=True, gap=0)


def _label(text: str, grey: int = 0) -> Image.Image:
    font = ImageFont.load_default(size=14)
    label = Image.new("RGB", (int(font.getlength(text)) + 4, _CAPTION), "white")
    ImageDraw.Draw(label).text((2, 2), text, fill=(grey, grey, grey), font=font)
    return label


def _stacked(pictures: Sequence[Image.Image], *, vertical: bool, gap: int = _GAP) -> Image.Image:
    widths, heights = [picture.width for picture in pictures], [picture.height for picture in pictures]
    gaps = gap * (len(pictures) - 1)
    size = (max(widths), sum(heights) + gaps) if vertical else (sum(widths) + gaps, max(heights))
    sheet = Image.new("RGB", size, "white")
    at = 0
    for picture in pictures:
        sheet.paste(picture, (0, at) if vertical else (at, 0))
        at += (picture.height if vertical else picture.width) + gap
    return sheet
