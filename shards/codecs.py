"""Pixels <-> bytes, lossless. Decoding trusts nothing: the size is compared before anything is allocated."""

import io
import threading
from typing import Final, Literal, Protocol

import numpy as np
import zstandard
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from shards.errors import DatasetError
from shards.sample import Pixels

CodecName = Literal["zstd", "png"]

# Level 1 is where log-like images stop paying: grainy scans encode at 370 MP/s into half their size; level 3
# takes four times as long and is no smaller (one core, 560 x 8,000).
_ZSTD_LEVEL = 1
_ZSTD_WINDOW = 2**27  # bytes; zstd's own default limit. A frame that asks for more is not ours.
_PNG_LEVEL = 1  # zlib: level 6 takes 1.2 (noisy) to 3.8 (mid) times as long and saves 7 to 13 %; clean logs, a third


class Codec(Protocol):
    """How one member's pixels are stored."""

    name: CodecName
    suffix: str
    """Last part of the member's name, with the dot."""

    def encode(self, pixels: Pixels) -> bytes:
        """The payload of uint8 [H, W] pixels."""
        ...

    def decode_into(self, payload: memoryview, out: Pixels) -> None:
        """Fill `out`, uint8 [H, W] in any layout, from a payload that must hold exactly that many pixels.

        Raises:
            DatasetError: The payload is damaged or holds something else; the message says what.
        """
        ...


class _PerThread(threading.local):
    """What a thread keeps between samples: a decompressor, and a buffer, since fresh pages cost more than decoding."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self.buffer = np.empty(0, np.uint8)

    def flat(self, size: int) -> Pixels:
        """Room for `size` pixels; contents arbitrary."""
        if self.buffer.size < size:
            self.buffer = np.empty(size, np.uint8)
        return self.buffer[:size]


class ZstdCodec:
    """Row-major pixels in one zstd frame with content size and checksum, so that every read verifies itself."""

    name: CodecName = "zstd"
    suffix = ".zst"

    def __init__(self) -> None:
        self._own = _PerThread()

    def encode(self, pixels: Pixels) -> bytes:
        """See `Codec`."""
        compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True, write_content_size=True)
        return compressor.compress(np.ascontiguousarray(pixels).reshape(-1).data)

    def decode_into(self, payload: memoryview, out: Pixels) -> None:
        """See `Codec`. One pass; a second, a row copy, when `out` is wider than its pixels."""
        try:
            frame = zstandard.get_frame_parameters(payload)
            if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN:
                raise DatasetError("does not say how many pixels it holds, which this format requires")
            if frame.content_size != out.size:
                raise DatasetError(f"holds {frame.content_size:,} pixels, expected {_shape(out)} = {out.size:,}")
            if not frame.has_checksum:
                raise DatasetError("has no content checksum, which this format requires")
            if out.flags.c_contiguous:
                self._inflate(payload, out.reshape(-1))
            else:
                flat = self._own.flat(out.size)
                self._inflate(payload, flat)
                out[...] = flat.reshape(out.shape)
            if (length := _frame_bytes(payload)) != len(payload):  # a cut checksum is none to the decompressor
                raise DatasetError(f"is {len(payload):,} bytes, its frame takes {length:,}")
        except zstandard.ZstdError as error:
            raise DatasetError(f"is damaged ({error})") from error

    def _inflate(self, payload: memoryview, flat: Pixels) -> None:
        with self._own.decompressor.stream_reader(payload, closefd=False) as stream:
            filled = 0
            while filled < flat.size:
                count = stream.readinto(flat[filled:].data)
                if count == 0:
                    raise DatasetError(f"ends after {filled:,} of {flat.size:,} pixels")
                filled += count
            stream.read(1)  # reaches the end of the frame, where the checksum is compared


def _frame_bytes(payload: memoryview) -> int:
    """Bytes of the zstd frame at the start of `payload`: header, blocks, checksum. RFC 8878, section 3.1.1."""
    end, last = zstandard.frame_header_size(payload), 0
    while not last and end < len(payload):
        block = int.from_bytes(payload[end : end + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        end += 3 + (1 if kind == 1 else size)  # kind 1 is one byte, repeated
    return end + 4


class PngCodec:
    """8-bit grey PNG, for those who want to look inside with anything."""

    name: CodecName = "png"
    suffix = ".png"

    def encode(self, pixels: Pixels) -> bytes:
        """See `Codec`."""
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG", compress_level=_PNG_LEVEL)
        return buffer.getvalue()

    def decode_into(self, payload: memoryview, out: Pixels) -> None:
        """See `Codec`. Pillow skips the checksums of image data when it decodes, so they are verified first.

        The size is compared here, which `Image.open` would do with a limit and an error of its own.
        """
        try:
            with PngImageFile(io.BytesIO(payload)) as image:
                height, width = out.shape
                if image.mode != "L" or image.size != (width, height):
                    raise DatasetError(f"is {image.mode} {image.height:,} x {image.width:,}, expected L {_shape(out)}")
                image.verify()
            with PngImageFile(io.BytesIO(payload)) as image:
                out[...] = np.asarray(image)
        except (OSError, SyntaxError, ValueError) as error:
            raise DatasetError(f"is damaged ({error})") from error


def _shape(pixels: Pixels) -> str:
    return f"{pixels.shape[0]:,} x {pixels.shape[1]:,}"


_CODECS: Final[dict[str, type[ZstdCodec] | type[PngCodec]]] = {"zstd": ZstdCodec, "png": PngCodec}


def codec_named(name: str) -> Codec:
    """The codec of a manifest's `codec` field."""
    if name not in _CODECS:
        raise DatasetError(f"codec is {name!r}; this version reads {' and '.join(_CODECS)}")
    return _CODECS[name]()
