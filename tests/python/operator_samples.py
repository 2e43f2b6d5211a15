"""PyTorch's own list of its operators, with arguments for each."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch


def operators() -> list[Any]:
    """Return the rows of `op_db`; empty where packages are missing that it needs."""
    # PyTorch's tests forbid to assign `torch.backends.cudnn.benchmark` and its like, as soon as they are imported.
    with mock.patch.object(torch.backends, "disable_global_flags"):
        try:
            from torch.testing._internal.common_methods_invocations import op_db
        except ImportError:
            return []
    return list(op_db)
