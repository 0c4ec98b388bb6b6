"""Read the data of a report back from its HTML file."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any


def data_of(page: Path) -> dict[str, Any]:
    """Return the runs and differences in a report."""
    found = re.search(r'<script id="data" type="text/plain">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return dict(json.loads(gzip.decompress(base64.b64decode(found[1]))))
