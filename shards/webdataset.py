"""webdataset reads our shards; this is what turns the bytes it yields into pixels."""

import json
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
    if not 0 < facts["height"] * facts["width"] <= MAX_SAMPLE_PIXELS:
        raise DatasetError(f"{sample['__key__']} claims {facts['height']} x {facts['width']} pixels")
    codec = codec_named(facts["dataset"]["codec"])
    decoded = {key: value for key, value in sample.items() if not key.endswith(codec.suffix)}
    for part in ("image", "mask"):
        pixels = np.empty((facts["height"], facts["width"]), np.uint8)
        codec.decode_into(memoryview(sample[part + codec.suffix]), pixels)
        decoded[part] = pixels
    return {**decoded, "json": facts}
