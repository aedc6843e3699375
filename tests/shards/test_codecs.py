"""Pixels and bytes: lossless there and back, and damage is refused, never decoded into other pixels."""

import io
import struct
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from shards.codecs import Codec, PngCodec, ZstdCodec, codec_named
from shards.errors import DatasetError
from shards.sample import Pixels

CODECS: tuple[Codec, ...] = (ZstdCodec(), PngCodec())
either = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)

pictures = arrays(np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40)), elements=st.integers(0, 255))


def decoded(codec: Codec, payload: bytes, shape: tuple[int, int]) -> Pixels:
    out = np.full(shape, 77, np.uint8)
    codec.decode_into(memoryview(payload), out)
    return out


def small_picture() -> Pixels:
    return (np.random.default_rng(0).integers(0, 4, (6, 9)) * 60).astype(np.uint8)


@either
@given(pixels=pictures)
def test_pixels_survive_the_round_trip(codec: Codec, pixels: Pixels) -> None:
    assert np.array_equal(decoded(codec, codec.encode(pixels), pixels.shape), pixels)


@either
@given(pixels=pictures, top=st.integers(0, 3), left=st.integers(0, 3), right=st.integers(0, 3))
def test_a_place_inside_a_larger_slab_is_filled_and_nothing_around_it(
    codec: Codec, pixels: Pixels, top: int, left: int, right: int
) -> None:
    height, width = pixels.shape
    slab = np.full((top + height + 1, left + width + right), 77, np.uint8)
    codec.decode_into(memoryview(codec.encode(pixels)), slab[top : top + height, left : left + width])
    expected = np.full_like(slab, 77)
    expected[top : top + height, left : left + width] = pixels
    assert np.array_equal(slab, expected)


@either
@pytest.mark.parametrize("view", [np.transpose, lambda a: a[::2], lambda a: a[:, ::-1]], ids=["T", "skip", "mirror"])
def test_any_layout_of_pixels_can_be_encoded(codec: Codec, view: Callable[[Pixels], Pixels]) -> None:
    pixels = view(small_picture())
    assert np.array_equal(decoded(codec, codec.encode(pixels), pixels.shape), pixels)


@either
def test_the_same_pixels_give_the_same_bytes(codec: Codec) -> None:
    assert codec.encode(small_picture()) == codec.encode(small_picture())


def test_a_zst_member_is_one_plain_zstd_frame_of_row_major_pixels() -> None:
    pixels = small_picture()
    payload = ZstdCodec().encode(pixels)
    assert zstandard.ZstdDecompressor().decompress(payload) == pixels.tobytes()
    frame = zstandard.get_frame_parameters(payload)
    assert frame.content_size == pixels.size
    assert frame.has_checksum


def test_a_png_member_is_a_plain_grey_png() -> None:
    pixels = small_picture()
    with Image.open(io.BytesIO(PngCodec().encode(pixels))) as image:
        assert (image.format, image.mode) == ("PNG", "L")
        assert np.array_equal(np.asarray(image), pixels)


@either
def test_a_flipped_bit_is_refused_or_changes_no_pixel(codec: Codec) -> None:
    pixels = small_picture()
    payload = codec.encode(pixels)
    refused = 0
    for bit in range(8 * len(payload)):
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert np.array_equal(decoded(codec, bytes(flipped), pixels.shape), pixels)
        except DatasetError:
            refused += 1
    assert refused > 4 * len(payload)  # most bits matter


@given(pictures, st.data())
def test_a_zstd_payload_cut_anywhere_is_refused(pixels: Pixels, data: st.DataObject) -> None:
    payload = ZstdCodec().encode(pixels)
    length = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(DatasetError):
        decoded(ZstdCodec(), payload[:length], pixels.shape)


@given(pictures, st.data())
def test_a_png_payload_cut_before_its_last_chunk_is_refused(pixels: Pixels, data: st.DataObject) -> None:
    payload = PngCodec().encode(pixels)
    length = data.draw(st.integers(0, len(payload) - 12 - 1))  # IEND is 12 bytes and holds no pixel
    with pytest.raises(DatasetError):
        decoded(PngCodec(), payload[:length], pixels.shape)


def test_a_damaged_frame_whose_checksum_was_cut_off_is_refused() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (20, 30)).astype(np.uint8)  # so that the block is stored raw
    payload = bytearray(ZstdCodec().encode(noise))
    payload[100] ^= 1
    with pytest.raises(DatasetError, match=f"is {len(payload) - 1:,} bytes, its frame takes {len(payload):,}"):
        decoded(ZstdCodec(), bytes(payload[:-1]), noise.shape)


def test_bytes_behind_a_frame_are_refused() -> None:
    payload = ZstdCodec().encode(small_picture())
    for behind in (b"\0", payload):
        with pytest.raises(DatasetError):
            decoded(ZstdCodec(), payload + behind, (6, 9))


@either
@given(pixels=pictures, taller=st.integers(-3, 3).filter(bool))
def test_another_size_than_expected_is_refused_with_both(codec: Codec, pixels: Pixels, taller: int) -> None:
    height, width = pixels.shape
    if height + taller < 1:
        return
    with pytest.raises(DatasetError, match=f"expected .*{height + taller} x {width}"):
        decoded(codec, codec.encode(pixels), (height + taller, width))


def test_a_png_of_the_same_pixel_count_and_another_shape_is_refused() -> None:
    with pytest.raises(DatasetError, match="is L 6 x 9, expected L 9 x 6"):
        decoded(PngCodec(), PngCodec().encode(small_picture()), (9, 6))


def test_a_claim_of_2_to_the_50_bytes_is_refused_before_anything_is_allocated() -> None:
    magic, descriptor, window, claim = b"\x28\xb5\x2f\xfd", bytes([0b11_0_0_0_1_00]), b"\0", struct.pack("<Q", 2**50)
    endless = b"\x03\0\0" + bytes(5)
    tracemalloc.start()
    with pytest.raises(DatasetError, match="holds 1,125,899,906,842,624 pixels, expected 6 x 9 = 54"):
        decoded(ZstdCodec(), magic + descriptor + window + claim + endless, (6, 9))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_frame_without_a_content_size_or_checksum_is_refused() -> None:
    pixels = small_picture()
    sizeless = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(pixels.tobytes())
    with pytest.raises(DatasetError, match="does not say how many pixels"):
        decoded(ZstdCodec(), sizeless, pixels.shape)
    unchecked = zstandard.ZstdCompressor(write_checksum=False).compress(pixels.tobytes())
    with pytest.raises(DatasetError, match="no content checksum"):
        decoded(ZstdCodec(), unchecked, pixels.shape)


@pytest.mark.parametrize("mode", ["RGB", "1", "P", "I;16", "LA"])
def test_a_png_that_is_not_8_bit_grey_is_refused(mode: str) -> None:
    buffer = io.BytesIO()
    Image.new(mode, (9, 6)).save(buffer, "PNG")
    with pytest.raises(DatasetError, match="expected L 6 x 9"):
        decoded(PngCodec(), buffer.getvalue(), (6, 9))


def test_a_picture_of_another_format_is_no_png() -> None:
    buffer = io.BytesIO()
    Image.fromarray(small_picture()).save(buffer, "BMP")
    with pytest.raises(DatasetError, match="is damaged"):
        decoded(PngCodec(), buffer.getvalue(), (6, 9))


@either
@given(junk=st.binary(max_size=200))
def test_junk_is_refused(codec: Codec, junk: bytes) -> None:
    with pytest.raises(DatasetError):
        decoded(codec, junk, (6, 9))


@either
def test_threads_share_a_codec(codec: Codec) -> None:
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 9, rng.integers(1, 200, 2)).astype(np.uint8) for _ in range(40)]
    payloads = [codec.encode(one) for one in pixels]

    def into_a_strided_place(number: int) -> bool:
        height, width = pixels[number].shape
        place = np.zeros((height, width + 5), np.uint8)[:, :width]
        codec.decode_into(memoryview(payloads[number]), place)
        return np.array_equal(place, pixels[number])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(into_a_strided_place, list(range(40)) * 3))


def test_a_codec_is_found_by_its_name() -> None:
    assert [codec_named(codec.name).suffix for codec in CODECS] == [".zst", ".png"]
    with pytest.raises(DatasetError, match="codec is 'gzip'; this version reads zstd and png"):
        codec_named("gzip")
