"""Random programs of reads and writes behave over several calls as in eager: results, state and sharing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from random_writes import Thing, describe, load, make_source, make_world

import thunder

CALLS = 4


class Run:
    """One copy of the world and the program that works on it."""

    def __init__(self, text: str, **options: Any) -> None:
        self.world = make_world()
        self.function, self.namespace = load(text, self.world)
        self.call = thunder.jit(self.function, **options) if options else self.function

    def picture(self, results: Any = None) -> Any:
        cells = [cell.cell_contents for cell in self.function.__closure__ or ()]
        return describe([results, self.world, self.namespace["GLOBAL"], self.namespace["COUNT"], cells])


def raises(text: str) -> bool:
    run = Run(text)
    try:
        for call in range(CALLS):
            run.call(run.world, torch.arange(2.0) + call)
    except Exception:
        return True
    return False


def check(seed: int) -> None:
    text = make_source(seed)
    if raises(text):
        return
    eager, compiled = Run(text), Run(text, compile="eager")
    for call in range(CALLS):
        x = torch.arange(2.0) + call
        expected = eager.picture(eager.call(eager.world, x))
        assert compiled.picture(compiled.call(compiled.world, x)) == expected, f"seed {seed}, call {call}:{text}"


@pytest.mark.parametrize("start", range(0, 400, 40))
def test_random_programs_write_as_in_eager(start: int) -> None:
    for seed in range(start, start + 40):
        check(seed)


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_random_program_that_fails_writes_as_in_eager(seed: int) -> None:
    text = make_source(seed)
    if raises(text):
        return
    text = text.replace("return out", "raise KeyError('end')")
    eager, compiled = Run(text), Run(text, compile="eager")
    for call in range(CALLS):
        for run in (eager, compiled):
            with pytest.raises(KeyError, match="end"):
                run.call(run.world, torch.arange(2.0) + call)
        assert compiled.picture() == eager.picture()


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_random_program_that_fails_writes_nothing_with_fullgraph(seed: int) -> None:
    text = make_source(seed)
    if raises(text):
        return
    run = Run(text.replace("return out", "raise KeyError('end')"), fullgraph=True)
    before = run.picture()
    with pytest.raises(KeyError, match="end"):
        run.call(run.world, torch.arange(2.0))
    assert run.picture() == before


def test_a_world_is_pictured_with_its_sharing() -> None:
    shared = [1]
    assert describe(Thing(a=shared, b=shared)) != describe(Thing(a=[1], b=[1]))
