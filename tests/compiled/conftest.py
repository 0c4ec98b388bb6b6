import gc

import pytest
import torch
from torch._dynamo.utils import counters


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    gc.collect()  # rigs of other tests
    torch._dynamo.reset()
    counters.clear()
