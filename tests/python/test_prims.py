"""The primitives of C++ and those of `thunder.prims`, which printed traces call, are the same."""

from __future__ import annotations

import inspect

import pytest

from thunder import _check, prims

ROWS = _check.load_extension()._primitive_rows()
FUNCTIONS = {name: value for name, value in vars(prims).items() if inspect.isfunction(value) and name[0] != "_"}


def test_each_primitive_of_cpp_has_a_function_and_the_other_way_around() -> None:
    assert {name.removeprefix("prims::") for name in ROWS} == set(FUNCTIONS)


def test_functions_are_public() -> None:
    assert {*FUNCTIONS, "GuardFailed"} == set(prims.__all__)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_function_takes_what_the_row_says(name: str) -> None:
    parameters, results = ROWS[f"prims::{name}"]
    signature = inspect.signature(FUNCTIONS[name])
    assert list(signature.parameters) == parameters
    assert (signature.return_annotation == "None") == (results == 0)
