"""Host batches -> batches on the device, one ahead."""

from collections import deque
from collections.abc import Iterator

import torch

from loader.batch import Batch


def on_device(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """Deliver host batches on `device`. On CUDA a side stream copies the next one while the current one trains."""
    if device.type != "cuda":
        for batch in batches:
            yield batch.to(device)
            del batch
        return
    copies = torch.cuda.Stream(device)
    leaving: deque[tuple[torch.cuda.Event, Batch]] = deque()  # a host batch must outlive the copy that reads it
    ahead: deque[tuple[torch.cuda.Event, Batch]] = deque()
    try:
        for host in batches:
            with torch.cuda.stream(copies):
                copied = host.to(device)
                arrived = copies.record_event()
            leaving.append((arrived, host))
            ahead.append((arrived, copied))
            del host, copied
            while leaving and leaving[0][0].query():
                leaving.popleft()
            if len(ahead) > 1:
                yield _handed_over(*ahead.popleft())
        while ahead:
            yield _handed_over(*ahead.popleft())
    finally:
        copies.synchronize()  # left early: the host batches go back to be filled again


def _handed_over(arrived: torch.cuda.Event, batch: Batch) -> Batch:
    """Make the current stream wait for the copy, and keep its memory until this stream is done with it."""
    stream = torch.cuda.current_stream(batch.images.device)
    stream.wait_event(arrived)
    for tensor in (batch.images, batch.masks, batch.sizes):
        tensor.record_stream(stream)
    return batch
