import pytest
from torch._dynamo.utils import counters

from tests.leftovers import clear_compiled


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    clear_compiled()
    counters.clear()
