"""`resize_` takes the elements of a tensor in the order of its memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import thunder

LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.arange(6.0).reshape(2, 3),
    "transposed": lambda: torch.arange(6.0).reshape(3, 2).t(),
    "with gaps": lambda: torch.arange(12.0).reshape(2, 6)[:, ::2],
    "part": lambda: torch.arange(12.0)[:6].view(2, 3),
    "with an offset": lambda: torch.arange(9.0)[3:].view(2, 3),
}
PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "same": lambda x: x.resize_(2, 3) * 1,
    "less": lambda x: x.resize_(4) * 2,
    "other shape": lambda x: x.resize_(3, 2).add_(1)[0],
    "more": lambda x: x.resize_(8).fill_(1.0).sum(),
    "back": lambda x: x.resize_(2).resize_(6).add_(1),
    "copy and back": lambda x: x.clone().resize_(2).resize_(6).add_(1),
    "nothing and back": lambda x: x.clone().resize_(0).resize_(2, 3).add_(1),
    "memory format": lambda x: x.resize_(2, 3, memory_format=torch.contiguous_format),
    "copy": lambda x: x.clone().resize_(3),
    "view": lambda x: x[1:].resize_(2) + 1,
    "like": lambda x: x.resize_as_(torch.zeros(3)) + 1,
    "out": lambda x: torch.add(torch.ones(2, 2), 1, out=x) if x.is_contiguous() else x * 1,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_resize_is_eagers(program: str, layout: str) -> None:
    compiled = thunder.jit(PROGRAMS[program])
    for _ in range(2):
        seen = []
        for function in (compiled, PROGRAMS[program]):
            x = LAYOUTS[layout]()
            try:
                result = function(x)
            except RuntimeError:
                seen.append(("RuntimeError",))
                continue
            shares = result.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            seen.append((result.tolist(), result.stride(), x.tolist(), x.stride(), shares))
        assert seen[0] == seen[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("begin", [0, 1])
def test_part_of_memory_that_grows_shows_what_lies_behind_it(begin: int) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.resize_(5).add_(1)

    compiled = thunder.jit(program)
    for _ in range(2):
        memory, expected = torch.arange(8.0), torch.arange(8.0)
        assert compiled(memory[begin : begin + 3]).tolist() == program(expected[begin : begin + 3]).tolist()
        assert memory.tolist() == expected.tolist()
