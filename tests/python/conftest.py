from __future__ import annotations

import pytest
import torch

# Two workers on two cores: one thread each.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
