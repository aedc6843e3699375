"""Contact sheets show logs as they are: cropped, painted over, never resized."""

import numpy as np
import pytest
from numpy.typing import NDArray

from shards.preview import Panel, bare, contact_sheet, painted


def found_in(sheet: NDArray[np.uint8], pixels: NDArray[np.uint8]) -> bool:
    """Whether `pixels` stand somewhere in the sheet, unchanged."""
    height, width = pixels.shape[:2]
    rows, columns = (range(sheet.shape[axis] - side + 1) for axis, side in ((0, height), (1, width)))
    corner = pixels[0, 0]
    return any(
        np.array_equal(sheet[top : top + height, left : left + width], pixels)
        for top in rows
        for left in columns
        if np.array_equal(sheet[top, left], corner)
    )


def noise(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def test_a_panel_s_pixels_are_found_unchanged() -> None:
    panels = [Panel("scan", noise(40, 70)), Panel("mask", noise(40, 70, seed=1))]
    sheet = np.asarray(contact_sheet([("log_1", panels), ("log_2", [Panel("scan", noise(30, 50, seed=2))])]))
    for pixels in (panels[0].pixels, panels[1].pixels, noise(30, 50, seed=2)):
        assert found_in(sheet, pixels)


def test_a_large_log_is_cropped_and_not_shrunken() -> None:
    pixels = noise(700, 1400)
    sheet = np.asarray(contact_sheet([("log", [Panel("scan", pixels)])]))
    assert found_in(sheet, pixels[:640, :1280])
    assert sheet.shape[1] == 1280


@pytest.mark.parametrize(
    ("height", "width", "beside"), [(40, 120, True), (40, 121, False), (300, 640, True), (50, 2000, False)]
)
def test_short_logs_have_their_panels_side_by_side_and_long_ones_one_above_the_other(
    height: int, width: int, beside: bool
) -> None:
    panels = [Panel(title, noise(height, width)) for title in ("scan", "mask", "prediction")]
    sheet = contact_sheet([("log", panels)])
    shown, gap = min(width, 1280), 8
    assert sheet.width == (3 * shown + 2 * gap if beside else shown)


def test_rows_stand_below_each_other() -> None:
    row = ("log", [Panel("scan", noise(40, 70))])
    one, three = contact_sheet([row]), contact_sheet([row] * 3)
    assert three.width == one.width
    assert three.height == 3 * one.height + 2 * 8
    assert one.height > 40


def test_a_bare_picture_is_the_scan_itself() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert np.array_equal(bare(image), np.stack([image] * 3, axis=-1))


def test_background_is_never_painted_and_classes_are_told_apart() -> None:
    image = np.full((2, 4), 100, np.uint8)
    classes = np.array([[0, 1, 2, 3], [0, 4, 5, 6]], np.uint8)
    colour = painted(image, classes)
    assert colour.shape == (2, 4, 3)
    assert np.all(colour[classes == 0] == 128 + 100 // 2)
    foreground = {tuple(pixel) for pixel in colour[classes > 0].tolist()}
    assert len(foreground) == 5  # the sixth repeats the first
    assert np.array_equal(colour[0, 1], colour[1, 3])
    assert all(len(set(pixel)) > 1 for pixel in foreground)  # a colour, not a grey
