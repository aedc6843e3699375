"""A folder of scans: what pairs, what is converted, and every problem in one error before anything is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from shards.errors import ConfigError, SourceError
from shards.folder import FolderConfig, FolderSource
from shards.pack import PackConfig, pack
from shards.sample import LogSample

GREY = np.arange(12 * 20, dtype=np.uint8).reshape(12, 20)
CLASSES = (np.arange(12 * 20) % 3).astype(np.uint8).reshape(12, 20)


def save(path: Path, pixels: NDArray[Any], mode: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path)


def pair(root: Path, stem: str, image: NDArray[Any] = GREY, mask: NDArray[Any] = CLASSES) -> None:
    save(root / "scans" / f"{stem}.png", image)
    save(root / "masks" / f"{stem}.png", mask)


def source_of(root: Path, **settings: Any) -> FolderSource:
    return FolderSource(root, FolderConfig(**({"images": "scans/*", "masks": "masks/*"} | settings)))


def only(root: Path, **settings: Any) -> LogSample:
    source = source_of(root, **settings)
    (info,) = source.scan()
    sample = source.load(info)
    assert sample.image.shape == sample.mask.shape == (info.height, info.width)
    assert sample.image.dtype == sample.mask.dtype == np.uint8
    return sample


def problem_of(root: Path, **settings: Any) -> str:
    with pytest.raises(SourceError) as caught:
        source_of(root, **settings).scan()
    return str(caught.value)


def test_scans_and_masks_pair_by_stem(tmp_path: Path) -> None:
    for n, stem in enumerate(("b", "a", "c")):
        pair(tmp_path, stem, GREY + np.uint8(n), np.roll(CLASSES, n))
    source = source_of(tmp_path)
    infos = source.scan()
    assert [info.key for info in infos] == ["a", "b", "c"]
    assert [info.source for info in infos] == ["scans/a.png", "scans/b.png", "scans/c.png"]
    for info, n in zip(infos, (1, 0, 2), strict=True):
        assert np.array_equal(source.load(info).image, GREY + np.uint8(n))
        assert np.array_equal(source.load(info).mask, np.roll(CLASSES, n))
    assert not source.conversions


def test_a_globstar_looks_into_subfolders(tmp_path: Path) -> None:
    save(tmp_path / "north" / "deep" / "a.png", GREY)
    save(tmp_path / "truth" / "a.bmp", CLASSES)
    assert only(tmp_path, images="north/**/*.png", masks="**/*.bmp").key == "a"


def test_pixels_of_any_format_are_the_file_s(tmp_path: Path) -> None:
    save(tmp_path / "scans" / "a.tif", GREY)
    save(tmp_path / "masks" / "a.gif", CLASSES)
    assert np.array_equal(only(tmp_path).image, GREY)


def test_every_problem_is_in_one_error_and_nothing_is_written(tmp_path: Path) -> None:
    pair(tmp_path, "sound")
    save(tmp_path / "scans" / "maskless.png", GREY)
    save(tmp_path / "masks" / "imageless.png", CLASSES)
    pair(tmp_path, "sizes", mask=CLASSES[:-1])
    pair(tmp_path, "seven", mask=CLASSES + np.uint8(5))
    pair(tmp_path, "coloured", mask=np.zeros((12, 20, 3), np.uint8))
    pair(tmp_path, "broken")
    (tmp_path / "scans" / "broken.png").write_bytes(b"not a picture")
    pair(tmp_path, "cut")
    cut = tmp_path / "masks" / "cut.png"
    cut.write_bytes(cut.read_bytes()[:60])
    with pytest.raises(SourceError) as caught:
        pack(source_of(tmp_path), tmp_path / "out", PackConfig())
    problems = str(caught.value).splitlines()
    assert problems[0] == f"{tmp_path}: 7 problems"
    assert problems[-1] == "nothing was written"
    told = {
        "maskless.png": "has no mask",
        "imageless.png": "has no image",
        "masks/sizes.png": "11 x 20 pixels, its image has 12 x 20",
        "masks/seven.png": "class 7, expected 0 to 2",
        "masks/coloured.png": "a RGB picture, expected one class id a pixel",
        "scans/broken.png": "not a picture that Pillow reads",
        "masks/cut.png": "not a picture that Pillow reads",
    }
    for name, what in told.items():
        assert sum(name in line and what in line for line in problems) == 1
    assert not any("sound" in line for line in problems)
    assert not (tmp_path / "out").exists()


def test_colour_becomes_grey_by_itu_r_601(tmp_path: Path) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (12, 20, 3)).astype(np.uint8)
    pair(tmp_path, "a", rgb)
    expected = rgb @ np.array([0.299, 0.587, 0.114])
    assert np.all(np.abs(only(tmp_path).image - expected) <= 1)


def test_what_is_converted_is_counted(tmp_path: Path) -> None:
    pair(tmp_path, "a b", np.zeros((12, 20, 3), np.uint8))
    pair(tmp_path, "c", np.zeros((12, 20, 3), np.uint8))
    pair(tmp_path, "d")
    source = source_of(tmp_path)
    for _ in range(2):  # a second scan does not count twice
        source.scan()
        assert source.conversions == {"RGB became grey": 2, "a dot or space in a name became _": 1}


def test_16_bits_keep_the_upper_8(tmp_path: Path) -> None:
    deep = (GREY.astype(np.uint16) << 8) + np.uint16(200)
    pair(tmp_path, "a", deep)
    assert np.array_equal(only(tmp_path).image, GREY)


def test_a_palette_shows_its_colours(tmp_path: Path) -> None:
    pair(tmp_path, "a")
    image = Image.fromarray(CLASSES).convert("P")
    image.putpalette([10, 10, 10, 90, 90, 90, 200, 200, 200])
    image.save(tmp_path / "scans" / "a.png")
    assert np.array_equal(only(tmp_path).image, np.array([10, 90, 200], np.uint8)[CLASSES])


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparency_shows_white_paper(mode: str, tmp_path: Path) -> None:
    alpha = np.where(np.arange(20) < 10, 0, 255).astype(np.uint8)[None, :].repeat(12, axis=0)
    image = Image.fromarray(GREY)
    image.putalpha(Image.fromarray(alpha))
    pair(tmp_path, "a")
    image.convert(mode).save(tmp_path / "scans" / "a.png")
    assert np.array_equal(only(tmp_path).image, np.where(alpha == 0, 255, GREY))


def test_a_black_and_white_scan_is_0_and_255(tmp_path: Path) -> None:
    pair(tmp_path, "a")
    save(tmp_path / "scans" / "a.png", CLASSES == 1)
    assert np.array_equal(only(tmp_path).image, np.where(CLASSES == 1, 255, 0))


def test_a_1_bit_mask_is_classes_0_and_1(tmp_path: Path) -> None:
    pair(tmp_path, "a", mask=CLASSES == 1)
    assert np.array_equal(only(tmp_path, classes=2).mask, CLASSES == 1)


def test_a_palette_mask_is_its_indices(tmp_path: Path) -> None:
    pair(tmp_path, "a")
    image = Image.fromarray(CLASSES).convert("P")
    image.putpalette([255, 255, 255, 200, 0, 0, 0, 0, 200])
    image.save(tmp_path / "masks" / "a.png")
    assert np.array_equal(only(tmp_path).mask, CLASSES)


def test_a_16_bit_mask_is_its_numbers(tmp_path: Path) -> None:
    pair(tmp_path, "a", mask=CLASSES.astype(np.uint16))
    assert np.array_equal(only(tmp_path).mask, CLASSES)


def test_a_class_that_would_wrap_around_is_out_of_range(tmp_path: Path) -> None:
    pair(tmp_path, "a", mask=CLASSES.astype(np.uint16) + np.uint16(256))
    assert "class 258, expected 0 to 2" in problem_of(tmp_path)


def test_a_negative_class_is_out_of_range(tmp_path: Path) -> None:
    pair(tmp_path, "a")
    save(tmp_path / "masks" / "a.tif", -(CLASSES.astype(np.int32)))
    assert "class -2, expected 0 to 2" in problem_of(tmp_path, masks="masks/*.tif")


@pytest.mark.parametrize("threshold", [1, 128, 255])
def test_a_threshold_is_the_least_grey_of_class_1(threshold: int, tmp_path: Path) -> None:
    pair(tmp_path, "a", mask=GREY)
    mask = only(tmp_path, classes=2, mask_threshold=threshold).mask
    assert np.array_equal(mask, threshold <= GREY)


@pytest.mark.parametrize("mode", ["1", "P"])
def test_a_threshold_sees_the_grey_of_1_bit_and_palette_masks(mode: str, tmp_path: Path) -> None:
    white = np.where(CLASSES == 1, 255, 0).astype(np.uint8)
    pair(tmp_path, "a")
    image = Image.fromarray(CLASSES == 1) if mode == "1" else Image.fromarray((CLASSES == 1).astype(np.uint8))
    if mode == "P":
        image = image.convert("P")
        image.putpalette([0, 0, 0, 255, 255, 255])
    assert image.mode == mode
    image.save(tmp_path / "masks" / "a.png")
    assert np.array_equal(only(tmp_path, classes=2, mask_threshold=128).mask, white >= 128)


def test_a_well_is_what_the_regex_finds(tmp_path: Path) -> None:
    for stem in ("W1_run1", "W1_run2", "W22_run1"):
        pair(tmp_path, stem)
    groups = [info.group for info in source_of(tmp_path, group_regex=r"W(\d+)_").scan()]
    assert groups == ["1", "1", "22"]
    groups = [info.group for info in source_of(tmp_path, group_regex=r"^[^_]+").scan()]
    assert groups == ["W1", "W1", "W22"]
    groups = [info.group for info in source_of(tmp_path).scan()]
    assert groups == ["W1_run1", "W1_run2", "W22_run1"]


@pytest.mark.parametrize("regex", [r"well(\d+)", r"(x)?run", r"x*"], ids=["no match", "no group", "empty"])
def test_a_stem_that_names_no_well_is_a_problem(regex: str, tmp_path: Path) -> None:
    pair(tmp_path, "a_run")
    assert f"its stem names no group by --group-regex {regex!r}" in problem_of(tmp_path, group_regex=regex)


def test_dots_and_spaces_in_names_become_underscores(tmp_path: Path) -> None:
    pair(tmp_path, "15.9-F 1.A")
    (info,) = source_of(tmp_path).scan()
    assert info.key == "15_9-F_1_A"
    assert info.group == "15.9-F 1.A"
    assert info.source == "scans/15.9-F 1.A.png"


def test_names_that_become_one_key_are_a_problem(tmp_path: Path) -> None:
    pair(tmp_path, "a.b")
    pair(tmp_path, "a_b")
    assert "2 files become the key a_b: rename them" in problem_of(tmp_path)


@pytest.mark.parametrize("stem", ["Bohrung_ä", "-dash", "k" * 81])
def test_a_name_that_cannot_be_a_key_is_a_problem(stem: str, tmp_path: Path) -> None:
    pair(tmp_path, stem)
    assert f"{stem!r} cannot be a key" in problem_of(tmp_path)


def test_two_files_of_one_stem_are_a_problem(tmp_path: Path) -> None:
    pair(tmp_path, "a")
    save(tmp_path / "scans" / "a.tif", GREY)
    assert f"a.tif has the stem of {tmp_path / 'scans' / 'a.png'}" in problem_of(tmp_path)


def test_a_scan_above_the_limit_is_refused_by_its_header(tmp_path: Path) -> None:
    pair(tmp_path, "a")
    told = problem_of(tmp_path, max_pixels=239)
    assert "12 x 20 = 240 pixels, at most 239 are accepted" in told
    assert only(tmp_path, max_pixels=240).key == "a"


def test_globs_that_match_the_same_file_are_told_apart(tmp_path: Path) -> None:
    save(tmp_path / "a.png", GREY)
    assert "a.png matches both --images and --masks" in problem_of(tmp_path, images="*.png", masks="*")


def test_an_absolute_glob_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a pattern relative to"):
        source_of(tmp_path, images="/scans/*.png").scan()


def test_a_config_lists_every_problem_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        FolderConfig(images="*", masks="*", classes=1, mask_threshold=256, group_regex="(", max_pixels=0)
    told = str(caught.value)
    for problem in ("classes is 1", "add --classes 2", "mask-threshold is 256", "group-regex '('", "max-pixels is 0"):
        assert problem in told


def test_a_folder_becomes_a_dataset_of_its_pixels(tmp_path: Path) -> None:
    pair(tmp_path, "a")
    pair(tmp_path, "b", GREY[:, :10], CLASSES[:, :10])
    manifest = pack(source_of(tmp_path), tmp_path / "out", PackConfig())
    assert sorted(manifest.sizes.tolist()) == [[12, 10], [12, 20]]
    assert manifest.header.classes == ("background", "class 1", "class 2")
