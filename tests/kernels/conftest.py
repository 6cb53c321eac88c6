import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def all_cores() -> Iterator[None]:
    """The kernels run in parallel, also where `make test` gives torch one thread.

    For large inputs that no test of any number of threads, which sets it itself, compares with one thread's.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)
