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
    pending: deque[tuple[Work, NDArray[np.uint8], list[Future[int]]]] = deque()

    def start_ahead() -> None:
        """Begin to fill as many batches as there are slabs; at least one."""
        nonlocal upcoming
        while upcoming is not None:
            micro_batch = upcoming.micro_batch
            room = slabs.take(len(micro_batch.rows), micro_batch.box, must=not pending)
            if room is None:
                return
            places = zip(micro_batch.rows, room[0], room[1], strict=True)
            pending.append((upcoming, room, [pool.submit(_fill, reader, int(row), i, m) for row, i, m in places]))
            upcoming = next(work, None)

    upcoming = next(work, None)
    try:
        while upcoming is not None or pending:
            started = time.perf_counter()
            start_ahead()
            batch = _finish(reader, *pending.popleft(), tally)
            tally.waited += time.perf_counter() - started
            yield batch
            del batch  # or its slab would be missing while the next is awaited
    finally:
        pool.shutdown(cancel_futures=True)


def _fill(reader: ShardReader, row: int, image: Pixels, mask: Pixels) -> int:
    """Decode one sample into its place. Returns the bytes read."""
    height, width = (int(side) for side in reader.manifest.sizes[row])
    pad_and_mask(image, mask, height, width)
    return reader.read_into(row, image[:height, :width], mask[:height, :width])


def _finish(
    reader: ShardReader, work: Work, room: NDArray[np.uint8], filling: list[Future[int]], tally: FetchTally
) -> Batch:
    rows = work.micro_batch.rows
    tally.bytes_read += sum(future.result() for future in filling)
    tally.batches += 1
    tally.images += len(rows)
    tally.padding += Padding(real_pixels(reader.manifest.sizes[rows]), work.micro_batch.padded_pixels)
    images, masks = torch.from_numpy(room)
    return Batch(
        images=images[:, None],
        masks=masks,
        sizes=torch.from_numpy(reader.manifest.sizes[rows]),
        keys=tuple(reader.manifest.text("key", rows)),
        step=work.step,
        step_images=work.step_images,
        ends_step=work.ends_step,
    )
