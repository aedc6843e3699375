"""Work in order -> filled host batches in order: threads decode each sample into its place in a reused slab.

Threads, not processes: images are megabytes, and `pread`, zstd and row copies release the interpreter's lock.
"""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from loader.batch import Batch
from loader.collate import SlabPool, pad_and_mask
from loader.plan import MicroBatch
from shards.geometry import Padding, real_pixels
from shards.reader import ShardReader
from shards.sample import Pixels


@dataclass(frozen=True, eq=False)
class Work:
    """One micro-batch to fill, and where it stands in its step."""

    micro_batch: MicroBatch
    step: int
    step_images: int
    ends_step: bool


@dataclass
class FetchTally:
    """What was fetched; grows as batches are handed over."""

    batches: int = 0
    images: int = 0
    bytes_read: int = 0
    waited: float = 0.0
    """Seconds the consumer waited for a batch."""
    padding: Padding = field(default_factory=lambda: Padding(0, 0))


def fetch(
    reader: ShardReader, work: Iterator[Work], *, slabs: SlabPool, threads: int, tally: FetchTally
) -> Iterator[Batch]:
    """Fill batches ahead of the consumer, as far as slabs are free, and hand them over in order.

    An error of a sample is raised at its batch, after all earlier ones were handed over. However the iteration ends,
    no thread is left behind.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="wellfeed-fetch")
    upcoming = next(work, None)
    pending: deque[_Filling] = deque()
    try:
        while upcoming or pending:
            started = time.perf_counter()
            while upcoming and (room := slabs.take(upcoming.micro_batch, must=not pending)) is not None:
                rows = upcoming.micro_batch.rows.tolist()
                samples = [pool.submit(_fill, reader, *place) for place in zip(rows, *room, strict=True)]
                pending.append(_Filling(upcoming, room, samples))
                del room
                upcoming = next(work, None)
            batch = _finish(reader, pending.popleft(), tally)
            tally.waited += time.perf_counter() - started
            yield batch
            del batch  # or its slab would be missing while the next is awaited
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, eq=False)
class _Filling:
    """A batch on its way."""

    work: Work
    room: NDArray[np.uint8]
    samples: list[Future[int]]


def _fill(reader: ShardReader, row: int, image: Pixels, mask: Pixels) -> int:
    """Decode one sample into its place. Returns the bytes read."""
    height, width = (int(side) for side in reader.manifest.sizes[row])
    pad_and_mask(image, mask, height, width)
    return reader.read_into(row, image[:height, :width], mask[:height, :width])


def _finish(reader: ShardReader, filling: _Filling, tally: FetchTally) -> Batch:
    """Wait for a batch's samples, count them, and wrap their room in tensors."""
    work, rows = filling.work, filling.work.micro_batch.rows
    tally.bytes_read += sum(sample.result() for sample in filling.samples)
    tally.batches += 1
    tally.images += len(rows)
    tally.padding += Padding(real_pixels(reader.manifest.sizes[rows]), work.micro_batch.padded_pixels)
    images, masks = torch.from_numpy(filling.room)
    return Batch(
        images=images[:, None],
        masks=masks,
        sizes=torch.from_numpy(reader.manifest.sizes[rows]),
        keys=tuple(reader.manifest.text("key", rows)),
        step=work.step,
        step_images=work.step_images,
        ends_step=work.ends_step,
    )
