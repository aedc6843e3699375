"""webdataset reads our shards; this is what turns the bytes it yields into pixels."""

import json
import math
from typing import Any

import numpy as np

from shards.codecs import codec_named
from shards.errors import DatasetError
from shards.sample import MAX_SAMPLE_PIXELS


def decode_sample(sample: dict[str, Any]) -> dict[str, Any]:
    """Decode one raw sample of an unmodified `webdataset.WebDataset`.

    `wds.WebDataset(shards).map(decode_sample)` yields `image` and `mask`, uint8 [H, W], and `json`, what the
    manifest says of the sample; either codec. Keys that are not ours pass through.

    Raises:
        DatasetError: A payload is damaged, or claims more pixels than a sample may have.
    """
    facts = json.loads(sample["json"])
    size = (facts["height"], facts["width"])
    if not all(isinstance(side, int) and side > 0 for side in size) or math.prod(size) > MAX_SAMPLE_PIXELS:
        raise DatasetError(f"{sample['__key__']} claims {size} pixels, expected 1 to {MAX_SAMPLE_PIXELS:,}")
    codec = codec_named(facts["dataset"]["codec"])
    decoded = {key: value for key, value in sample.items() if not key.endswith(codec.suffix)}
    for part in ("image", "mask"):
        pixels = np.empty(size, np.uint8)
        codec.decode_into(memoryview(sample[part + codec.suffix]), pixels)
        decoded[part] = pixels
    return {**decoded, "json": facts}
