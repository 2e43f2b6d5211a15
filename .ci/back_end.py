"""Use thunder as a back end of torch.compile, found by its entry point alone: python .ci/back_end.py."""

from __future__ import annotations

import sys

import torch

if __name__ == "__main__":
    compiled = torch.compile(lambda x: torch.sin(x) + 1, backend="thunder")
    x = torch.ones(3, requires_grad=True)
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.cos(x.detach()))
    print(f"torch.compile found the back end in {sys.modules['thunder'].__file__}")
