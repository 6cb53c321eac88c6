import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def all_cores() -> Iterator[None]:
    """The kernels run in parallel here, also where `make test` gives torch one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)
