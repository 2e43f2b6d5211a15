from __future__ import annotations

import dataclasses
import inspect
import pydoc

import pytest

import thunder
from thunder.options import CACHE, COMPILE, REMATERIALIZE, SHARP_EDGES, Options


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


@pytest.mark.parametrize(
    ("name", "choices"),
    [("cache", CACHE), ("sharp_edges", SHARP_EDGES), ("compile", COMPILE), ("rematerialize", REMATERIALIZE)],
)
def test_unknown_choice_lists_the_valid_ones(name: str, choices: tuple[object, ...]) -> None:
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


def test_options_can_be_passed_as_one() -> None:
    options = Options(executors=["aten"], rematerialize=False)
    assert thunder.jit(f, options=options).options == options
    assert options.executors == ("aten",)


def test_keywords_go_before_options() -> None:
    options = Options(rematerialize=False, fullgraph=True)
    assert thunder.jit(f, options=options, fullgraph=False).options == Options(rematerialize=False)


def test_options_decorate() -> None:
    assert thunder.jit(options=Options(fullgraph=True))(f).options.fullgraph


def test_other_objects_are_no_options() -> None:
    with pytest.raises(TypeError, match=r"options: expected thunder\.Options"):
        thunder.jit(f, options={"fullgraph": True})


@pytest.mark.parametrize("field", dataclasses.fields(Options), ids=lambda field: field.name)
def test_help_of_jit_shows_every_option(field: dataclasses.Field) -> None:
    parameter = inspect.signature(thunder.jit).parameters[field.name]
    assert parameter.default == field.default
    text = pydoc.render_doc(thunder.jit, renderer=pydoc.plaintext)
    assert f"{field.name}: '{parameter.annotation}' = {field.default!r}" in text
    assert f"        {field.name}: " in text.partition("Args:")[2]


@pytest.mark.parametrize("name", ["cache", "sharp_edges"])
def test_none_is_the_default_of_a_choice(name: str) -> None:
    assert thunder.jit(f, **{name: None}).options == Options()


@pytest.mark.parametrize(
    "option", [{"cache": thunder.CACHE_OPTIONS.NO_CACHING}, {"sharp_edges": thunder.SHARP_EDGES_OPTIONS.ERROR}]
)
def test_choices_are_given_as_enumerations(option: dict) -> None:
    ((name, value),) = option.items()
    assert thunder.jit(f, **option).options == Options(**{name: value.value})


@pytest.mark.parametrize(("name", "choices"), [("CACHE_OPTIONS", CACHE), ("SHARP_EDGES_OPTIONS", SHARP_EDGES)])
def test_enumerations_have_all_choices(name: str, choices: tuple[str, ...]) -> None:
    assert {each.value for each in getattr(thunder, name)} == set(choices)


def test_options_print_one_a_line() -> None:
    assert "cache='same input'\n" in str(Options(cache="same input"))
