from __future__ import annotations

import dataclasses

import pytest

import thunder
from thunder.options import CACHE, COMPILE, SHARP_EDGES, Options


def f(x):
    return x


def test_unknown_option_lists_the_valid_ones() -> None:
    with pytest.raises(TypeError) as caught:
        thunder.jit(f, no_such_option=1)
    for field in dataclasses.fields(Options):
        assert field.name in str(caught.value)


def test_misspelled_option_suggests_the_right_one() -> None:
    with pytest.raises(TypeError, match="did you mean 'cache'"):
        thunder.jit(f, chache="constant values")


@pytest.mark.parametrize(("name", "choices"), [("cache", CACHE), ("sharp_edges", SHARP_EDGES), ("compile", COMPILE)])
def test_unknown_choice_lists_the_valid_ones(name: str, choices: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as caught:
        thunder.jit(f, **{name: "no such choice"})
    assert str(caught.value).startswith(f"thunder.jit: {name}: expected one of")
    for choice in choices:
        assert repr(choice) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cache", 3),
        ("executors", "aten"),
        ("executors", [1]),
        ("executors", 3),
        ("transforms", 3),
        ("fullgraph", 1),
        ("rematerialize", 1),
        ("prepack_weights", "yes"),
    ],
)
def test_option_of_a_wrong_type_raises_type_error(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"thunder.jit: {name}: expected"):
        thunder.jit(f, **{name: value})


def test_unknown_executor_lists_the_available_ones() -> None:
    with pytest.raises(ValueError, match="aten"):
        thunder.jit(f, executors=["no_such_executor"])


def test_every_option_is_accepted_by_the_extension() -> None:
    assert thunder.jit(f, **{**Options().as_dict(), "executors": ["aten"]}).options == Options(executors=("aten",))


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().cache = "no caching"
