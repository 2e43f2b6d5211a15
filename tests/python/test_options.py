from __future__ import annotations

import dataclasses
import inspect
import pydoc
from collections.abc import Callable

import pytest
import torch

import thunder
from thunder.extend import OperatorExecutor
from thunder.options import CACHE, COMPILE, REMATERIALIZE, SHARP_EDGES, Options
from thunder.plugins import DDP, FSDP, QuantizeInt4
from thunder.recipes import BaseRecipe, HFTransformers


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


@pytest.mark.parametrize("function", [thunder.compile, thunder.explain_recipe])
def test_unknown_option_of_compile_is_told_as_its_own(function: object) -> None:
    with pytest.raises(
        TypeError, match=r"thunder\.compile: unknown option 'zzz'; the options are recipe, plugins, exec"
    ):
        function(torch.nn.Tanh(), zzz=1)
    with pytest.raises(TypeError, match=r"thunder\.compile: unknown option 'plugin'; did you mean 'plugins'"):
        function(torch.nn.Tanh(), plugin="ddp")
    with pytest.raises(ValueError, match=r"thunder\.compile: cache: expected one of"):
        function(torch.nn.Tanh(), cache="x")


@pytest.mark.parametrize("name", ["plugins", "recipe"])
def test_options_of_compile_alone_point_there(name: str) -> None:
    for given, told in ((name, "it"), (f"{name}_", repr(name))):
        with pytest.raises(TypeError, match=rf"thunder.compile has {told}: thunder\.compile\(model, {name}=…\)"):
            thunder.jit(f, **{given: "x"})


def test_unknown_option_of_a_plugin_names_the_plugin() -> None:
    class Misspelling(thunder.Plugin):
        def setup_config(self) -> dict[str, object]:
            return {"dynamc": True}

    with pytest.raises(
        TypeError, match=r"thunder\.compile: Misspelling: unknown option 'dynamc'; did you mean 'dynamic'"
    ):
        thunder.compile(torch.nn.Tanh(), plugins=Misspelling)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda: HFTransformers(static_cach=True),
            TypeError,
            "hf-transformers: unknown option 'static_cach'; did you mean",
        ),
        (lambda: HFTransformers(static_cache=3), TypeError, "hf-transformers: static_cache: expected a bool, got 3"),
        (lambda: BaseRecipe(fuser=[]), TypeError, r"default: fuser: expected one of 'thunder', .*got \[\]"),
        (lambda: BaseRecipe(interpreter="x"), ValueError, "default: interpreter: expected one of"),
        (lambda: BaseRecipe(show_progress=1), TypeError, "default: show_progress: expected a bool"),
        (lambda: BaseRecipe(dynamic="x"), TypeError, "default: dynamic: expected a bool or None"),
        (lambda: QuantizeInt4(group="a"), TypeError, "group: expected an even number from 2 on, got 'a'"),
        (lambda: QuantizeInt4(group=2.0), TypeError, "group: expected an even number from 2 on, got 2.0"),
        (lambda: QuantizeInt4(group=0), ValueError, "group: expected an even number from 2 on, got 0"),
        (lambda: DDP(bucket_size=1), TypeError, "plugins.DDP: unknown option 'bucket_size'; did you mean"),
        (
            lambda: FSDP(zzz=1),
            TypeError,
            r"plugins.FSDP: unknown option 'zzz'; the options of thunder\.distributed\.fsdp",
        ),
        (lambda: thunder.plugins.register_plugin(3, DDP), TypeError, "expected a name, got 3"),
    ],
)
def test_arguments_of_recipes_and_plugins_are_checked(
    make: Callable[[], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        make()


class Nothing(thunder.Transform):
    pass


class Scaled(thunder.Plugin):
    def __init__(self, scale: float) -> None:
        self.scale = scale


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: thunder.jit(f, transforms=[Nothing]), r"got the class Nothing; give an instance: Nothing\(\)"),
        (lambda: thunder.jit(f, executors=[OperatorExecutor]), r"give an instance: OperatorExecutor\(…\)"),
        (lambda: thunder.jit(f, options=Options), r"give an instance: Options\(\)"),
        (lambda: thunder.add_default_executor(OperatorExecutor), r"give an instance: OperatorExecutor\(…\)"),
        (lambda: thunder.compile(f, plugins=[Scaled]), r"Scaled: missing .* 'scale'; give an instance: Scaled\(…\)"),
        (lambda: thunder.compile(f, plugins=[Nothing]), r"transforms=\[Nothing\(…\)\] takes it"),
        (lambda: thunder.compile(f, plugins=Nothing()), r"transforms=\[Nothing\(…\)\] takes it"),
    ],
)
def test_classes_in_the_place_of_their_instances_are_told(make: Callable[[], object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: thunder.jit(f, torch.ones(3)), r"got a Tensor of shape \(3,\) too; .*thunder\.jit\(f\)\(…\)"),
        (lambda: thunder.jit(torch.nn.Tanh(), 3), r"got 3 too; .*thunder\.jit\(model\)\(…\)"),
        (lambda: thunder.jit(f, Options()), r"write thunder\.jit\(f, options=options\)"),
        (lambda: thunder.compile(f, torch.ones(3)), r"recipe: .* got a Tensor .*thunder\.compile\(model\)\(…\)"),
    ],
)
def test_arguments_of_the_program_belong_to_the_call_of_the_result(make: Callable[[], object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()
