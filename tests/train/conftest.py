import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """These tensors are so small that a second thread costs more than it computes."""
    torch.set_num_threads(1)
