import pytest
from torch._dynamo.utils import counters


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    counters.clear()
