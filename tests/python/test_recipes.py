"""`thunder.compile`: recipes, what they recognize and choose, and plugins."""

from __future__ import annotations

import copy
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed_plugins
import pytest
import torch
from beside_eager import assert_as_eager
from processes import BACKENDS, run_in_processes
from transformers import (
    BertConfig,
    BertModel,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import thunder
from thunder import plugins, recipes
from thunder.extend import OperatorExecutor, deregister_executor, register_executor
from thunder.plugins import engines
from thunder.recipes import registry

needs_litgpt = pytest.mark.skipif(importlib.util.find_spec("litgpt") is None, reason="needs litgpt")
needs_lightning = pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="needs lightning")
GENERATE: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()


def gpt() -> Any:
    import litgpt

    torch.manual_seed(0)
    config = litgpt.Config.from_name("pythia-14m", padded_vocab_size=64, n_layer=2, n_embd=32, n_head=4, block_size=32)
    return litgpt.GPT(config).eval()


def class_of(name: str, module: str, *bases: type) -> type:
    """Return a class that says it comes from a library which is not imported."""
    return type(name, bases or (torch.nn.Linear,), {"__module__": module})


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Forget what a test registers."""
    known, plugin_names = dict(registry._recipes), dict(plugins.registry._plugins)
    yield
    registry._recipes.clear()
    registry._recipes.update(known)
    plugins.registry._plugins.clear()
    plugins.registry._plugins.update(plugin_names)


def recipe_of(model: Any) -> str:
    return registry.resolve_recipe(model, "auto").name


@pytest.mark.parametrize(
    ("module", "name", "recipe"),
    [
        ("transformers.modeling_utils", "PreTrainedModel", "hf-transformers"),
        ("litgpt.model", "GPT", "litgpt"),
        ("timm.models.vit", "VisionTransformer", "timm"),
        ("lightning.pytorch.core.module", "LightningModule", "lightning"),
        ("pytorch_lightning.core.module", "LightningModule", "lightning"),
        ("transformers.configuration_utils", "Other", "default"),
        ("mine", "PreTrainedModel", "default"),
    ],
)
@pytest.mark.parametrize("derived", [False, True])
def test_auto_recognizes_by_names(module: str, name: str, recipe: str, derived: bool) -> None:
    cls = class_of(name, module)
    if derived:
        cls = class_of("Mine", "mine", cls)
    assert recipe_of(cls(2, 2)) == recipe


def test_recognizing_imports_no_library() -> None:
    code = (
        "import sys, torch, thunder; thunder.compile(torch.nn.Linear(2, 2))(torch.ones(1, 2)); "
        "assert not {'transformers', 'litgpt', 'timm', 'lightning'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_compiled_model_computes_as_eager() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    x = torch.randn(3, 4)
    torch.testing.assert_close(thunder.compile(model)(x), model(x))


def test_functions_are_compiled_too() -> None:
    compiled = thunder.compile(lambda x: x.sin() + 1)
    torch.testing.assert_close(compiled(torch.ones(2)), torch.ones(2).sin() + 1)
    assert thunder.cache_misses(compiled) == 1


def test_compile_decorates() -> None:
    @thunder.compile(recipe=recipes.BaseRecipe(fullgraph=True))
    def f(x):
        return x + 1

    assert f.options == thunder.Options(fullgraph=True)


def test_options_are_what_the_recipe_says() -> None:
    recipe = recipes.BaseRecipe(cache="no caching", rematerialize=False)
    model = torch.nn.Linear(2, 2)
    assert recipe.settings(model).options == {"cache": "no caching", "rematerialize": False}
    compiled = thunder.compile(model, recipe)
    assert compiled.__options__ == thunder.Options.of(recipe.settings(model).options)


@pytest.mark.parametrize("name", ["default", "hf-transformers", "lightning", "litgpt", "timm"])
def test_recipes_are_known_by_name(name: str) -> None:
    assert name in recipes.get_recipes()
    assert recipes.get_recipe_class(name).name == name


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"recipe": "no such"}, ValueError, "recipe: expected one of auto, default, hf-transformers"),
        ({"recipe": 3}, TypeError, "recipe: expected thunder.recipes.BaseRecipe"),
        ({"recipe": "hf-transformers"}, ValueError, "expected a transformers.PreTrainedModel, got Linear"),
        ({"recipe": "lightning"}, ValueError, "expected a LightningModule, got Linear"),
        ({"plugins": "no such"}, ValueError, "plugins: expected one of ddp, fp8"),
        ({"plugins": [3]}, TypeError, "expected thunder.plugins.Plugin or a name"),
    ],
)
def test_wrong_recipes_and_plugins_are_refused(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        thunder.compile(torch.nn.Linear(2, 2), **arguments)


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"interpreter": "python"}, ValueError, "interpreter: expected one of"),
        ({"fuser": "nvfuser"}, ValueError, "no nvfuser"),
        ({"fuser": "other"}, ValueError, "fuser: expected one of"),
        ({"show_progress": True}, NotImplementedError, "show_progress"),
    ],
)
def test_wrong_arguments_of_recipes_are_refused(keywords: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        recipes.BaseRecipe(**keywords)


def test_recipes_of_the_user_are_asked_first() -> None:
    class Mine(recipes.BaseRecipe):
        name = "mine"

        @classmethod
        def recognizes(cls, model: object) -> bool:
            return isinstance(model, torch.nn.Linear)

        def setup_config(self) -> dict[str, Any]:
            return {"sharp_edges": "error"}

    recipes.register_recipe("mine", Mine)
    assert thunder.compile(torch.nn.Linear(2, 2)).__options__.sharp_edges == "error"
    assert thunder.compile(torch.nn.ReLU()).__options__.sharp_edges == "exact"
    assert thunder.compile(torch.nn.ReLU(), recipe="mine").__options__.sharp_edges == "error"


@pytest.mark.parametrize(("name", "recipe"), [("auto", recipes.BaseRecipe), ("mine", int)])
def test_recipes_that_cannot_be_registered(name: str, recipe: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"thunder\.recipes"):
        recipes.register_recipe(name, recipe)


# --- what is printed


def test_explain_recipe_prints_a_call(capsys: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.Linear(2, 2)
    thunder.explain_recipe(model, recipes.BaseRecipe(cache="same input"), plugins.QuantizeInt4())
    printed = capsys.readouterr().out
    assert printed.startswith("recipe default:\n  thunder.jit(\n      model,\n")
    assert "cache='same input',  # the caller\n" in printed
    assert "transforms=[Int4Weights(group=64)],  # QuantizeInt4\n" in printed


def test_explain_recipe_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    model = llama()
    thunder.explain_recipe(model)
    assert "model.generate(…, cache_implementation='static')" in capsys.readouterr().out
    assert model.generation_config.cache_implementation is None


# --- libraries


def test_generated_tokens_share_a_program() -> None:
    model, prompt = llama(), torch.arange(6).unsqueeze(0)
    expected = model.generate(prompt, **GENERATE)
    compiled = thunder.compile(model)
    torch.testing.assert_close(compiled.generate(prompt, **GENERATE), expected)
    assert thunder.cache_misses(compiled) == 2


def test_cache_of_generate_is_left_when_asked() -> None:
    model = llama()
    thunder.compile(model, recipes.HFTransformers(static_cache=False))
    assert model.generation_config.cache_implementation is None


def test_cache_that_was_chosen_stays() -> None:
    model = llama()
    model.generation_config.cache_implementation = "dynamic"
    thunder.compile(model)
    assert model.generation_config.cache_implementation == "dynamic"


@pytest.mark.parametrize(
    "other",
    [{"prompt_lookup_num_tokens": 3}, {"use_cache": False}, {"num_beams": 2}, {"cache_implementation": "dynamic"}],
    ids=lambda other: next(iter(other)),
)
def test_other_ways_to_generate(other: dict[str, Any]) -> None:
    model, prompt = llama(), torch.arange(6).unsqueeze(0)
    expected = model.generate(prompt, **GENERATE, **other)
    torch.testing.assert_close(thunder.compile(model).generate(prompt, **GENERATE, **other), expected)


def test_generate_with_a_configuration() -> None:
    model, prompt = llama(), torch.arange(6).unsqueeze(0)
    config = GenerationConfig(**GENERATE)
    compiled = thunder.compile(model)
    torch.testing.assert_close(compiled.generate(prompt, config), model.generate(prompt, config))
    assert thunder.cache_misses(compiled) == 2
    assert config.cache_implementation is None


def test_models_are_saved_as_they_were(tmp_path: Path) -> None:
    model = llama()
    model.config.use_cache = model.generation_config.use_cache = False
    thunder.compile(model).save_pretrained(tmp_path / "compiled")
    model.save_pretrained(tmp_path / "plain")
    for name in ("config.json", "generation_config.json"):
        assert (tmp_path / "compiled" / name).read_text() == (tmp_path / "plain" / name).read_text()


def test_models_that_do_not_generate_have_no_settings() -> None:
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=16)
    model = BertModel(config)
    assert recipes.HFTransformers().settings(model).settings == ()


@needs_litgpt
def test_tokens_of_litgpt_share_a_program() -> None:
    from litgpt.generate.base import generate

    model, prompt = gpt(), torch.arange(4)
    results = []
    for compiled in (copy.deepcopy(model), thunder.compile(model)):
        compiled.set_kv_cache(1)
        with torch.inference_mode():
            results.append(generate(compiled, prompt, 12, temperature=0.0, top_k=None))
    torch.testing.assert_close(*results)
    assert thunder.cache_misses(compiled) == 2


@needs_litgpt
def test_class_of_the_litgpt_model_keeps_its_name() -> None:
    model = gpt()
    compiled = thunder.compile(model)
    assert type(model).__name__ == "GPT"
    assert type(compiled).__name__ == "ThunderModule"
    assert isinstance(compiled, type(model))


@needs_lightning
def test_submodules_of_lightning_modules_are_compiled() -> None:
    import lightning

    class Regression(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
            self.heads = torch.nn.ModuleList([torch.nn.Linear(4, 1)])

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            return self.heads[0](self.body(batch)).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    module = Regression()
    plain, batch = copy.deepcopy(module), torch.randn(2, 4)
    compiled = thunder.compile(module)
    assert compiled is module
    assert isinstance(module.body, thunder.ThunderModule)
    assert isinstance(module.heads[0], thunder.ThunderModule)
    torch.testing.assert_close(module.training_step(batch, 0), plain.training_step(batch, 0))
    assert list(module.state_dict()) == list(plain.state_dict())


# --- plugins


class Sines(OperatorExecutor):
    def __init__(self) -> None:
        super().__init__("sines_tests")
        op = self.register_operator("sine", like=torch.sin, fn=torch.sin)
        self.register_implementation(torch.sin, op)


def test_plugins_of_the_user_add_options() -> None:
    executor = Sines()

    class Mine(plugins.Plugin):
        def setup_executors(self) -> list[Any]:
            return [executor]

        def setup_config(self) -> dict[str, Any]:
            return {"fullgraph": True}

    compiled = thunder.compile(torch.sin, plugins=Mine)
    compiled(torch.ones(2))
    assert "sines_tests.sine" in str(thunder.last_traces(compiled)[-1])
    assert compiled.options == thunder.Options(executors=(executor,), fullgraph=True)


@pytest.mark.parametrize("policy", list(plugins.PluginPolicy))
def test_policy_says_where_transforms_stand(policy: plugins.PluginPolicy) -> None:
    inner, outer = thunder.transforms.Transform(), thunder.transforms.Transform()

    class Mine(plugins.Plugin):
        def setup_transforms(self) -> list[Any]:
            return [outer]

    class Recipe(recipes.BaseRecipe):
        def setup_transforms(self) -> list[Any]:
            return [inner]

    Mine.policy = policy
    options = Recipe(plugins=Mine()).settings(torch.sin).options
    first, second = (outer, inner) if policy is plugins.PluginPolicy.PRE else (inner, outer)
    assert options["transforms"][0] is first
    assert options["transforms"][1] is second


def test_plugins_are_registered_by_name() -> None:
    class Mine(plugins.Plugin):
        def setup_config(self) -> dict[str, Any]:
            return {"cache": "no caching"}

    plugins.register_plugin("mine", Mine)
    assert "mine" in plugins.get_plugin_names()
    assert plugins.get_plugin("mine") is Mine
    assert thunder.compile(torch.sin, plugins=["mine"]).options.cache == "no caching"


def test_conflicting_options_name_both() -> None:
    class Mine(plugins.Plugin):
        def setup_config(self) -> dict[str, Any]:
            return {"cache": "no caching"}

    class Recipe(recipes.BaseRecipe):
        def setup_config(self) -> dict[str, Any]:
            return {"cache": "same input"}

    with pytest.raises(ValueError, match="cache: Mine chooses 'no caching', default chooses 'same input'"):
        thunder.compile(torch.sin, Recipe(), Mine())
    assert thunder.compile(torch.sin, Recipe(cache="same input"), Mine()).options.cache == "same input"


def test_plugins_do_not_stay_with_a_recipe() -> None:
    recipe = recipes.BaseRecipe()
    thunder.compile(torch.nn.Linear(4, 3), recipe, plugins.QuantizeInt4())
    assert recipe.plugins == []


def test_lookasides_are_refused_with_what_serves_instead() -> None:
    class Mine(plugins.Plugin):
        def setup_lookasides(self) -> list[Any]:
            return []

    with pytest.raises(NotImplementedError, match="register_implementation"):
        thunder.compile(torch.sin, plugins=Mine())


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_data_parallel_without_an_engine_names_what_serves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_distributed", lambda name: None)
    with pytest.raises(NotImplementedError, match=rf"thunder\.distributed\.{name}; instead: torch"):
        thunder.compile(torch.nn.Linear(2, 2), plugins=name)


@pytest.mark.parametrize("plugin", [plugins.DDP, plugins.FSDP])
def test_data_parallel_uses_its_engine(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def engine(model: Any, **options: Any) -> Any:
        asked.append(options)
        return torch.nn.Sequential(model)

    monkeypatch.setattr(engines, "_distributed", lambda name: engine)
    compiled = thunder.compile(torch.nn.Linear(2, 2), plugins=plugin(broadcast_from=0))
    assert isinstance(compiled, torch.nn.Sequential)
    assert asked == [{"broadcast_from": 0}]


@pytest.mark.parametrize("backend", BACKENDS)
def test_data_parallel_plugins_train_as_one_process(backend: str) -> None:
    for results in run_in_processes(distributed_plugins.train_all, backend=backend):
        for name in ("ddp", "fsdp"):
            torch.testing.assert_close(results[name], results["eager"])


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_data_parallel_plugins_need_a_process_group(name: str) -> None:
    with pytest.raises(RuntimeError, match="process group"):
        thunder.compile(torch.nn.Linear(2, 2), plugins=name)


def test_reduce_overhead_is_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_has_option", lambda name: True)
    assert recipes.BaseRecipe(plugins="reduce-overhead").settings(torch.sin).options == {"cuda_graphs": True}


def test_reduce_overhead_without_the_option_names_what_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_has_option", lambda name: False)
    with pytest.raises(NotImplementedError, match=r"ReduceOverhead: .*no CUDA graphs.*make_graphed_callables"):
        thunder.compile(torch.sin, plugins="reduce-overhead")


def test_fp8_needs_an_executor() -> None:
    with pytest.raises(NotImplementedError, match=r"FP8: .*no executor 'fp8'"):
        thunder.compile(torch.sin, plugins="fp8")
    executor = register_executor(OperatorExecutor("fp8"))
    try:
        assert thunder.compile(torch.sin, plugins="fp8").options.executors == (executor,)
    finally:
        deregister_executor("fp8")


# --- weights in 4 bits


def quantized(model: torch.nn.Module, group: int = 64) -> torch.nn.Module:
    """Return a copy of a model with the weights that 4 bits can hold."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module.in_features % 2 == 0:
            size = group if module.in_features % group == 0 else module.in_features
            stored = plugins.int4.quantize(module.weight, size)
            module.weight = torch.nn.Parameter(plugins.int4.dequantize(*stored), requires_grad=False)
    return model


def layers() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.GELU(), torch.nn.Linear(64, 6), torch.nn.Linear(6, 3))


@pytest.mark.parametrize("group", [2, 64])
def test_int4_weights_are_near(group: int) -> None:
    weight = torch.randn(8, 128)
    packed, stored = plugins.int4.quantize(weight, group)
    difference = (plugins.int4.dequantize(packed, stored) - weight).abs().reshape(8, -1, group)
    span = weight.reshape(8, -1, group).amax(-1) - weight.reshape(8, -1, group).amin(-1)
    assert packed.shape == (8, 64)
    assert (difference.amax(-1) <= span / 30 + 1e-6).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int4_model_computes_with_packed_weights(dtype: torch.dtype) -> None:
    model = layers().to(dtype)
    compiled = thunder.compile(model, plugins=plugins.QuantizeInt4())
    x = torch.randn(5, 128, dtype=dtype)
    torch.testing.assert_close(compiled(x), quantized(model)(x))
    assert compiled[0].weight.dtype == torch.uint8
    assert model[0].weight.dtype == dtype


def test_int4_weights_take_a_fifth_of_the_memory() -> None:
    model = torch.nn.Linear(256, 64, bias=False)
    packed = thunder.compile(model, plugins=plugins.QuantizeInt4(group=128))
    assert sum(tensor.nbytes for tensor in packed.state_dict().values()) < model.weight.nbytes / 5


def test_int4_model_loads_and_gives_original_entries() -> None:
    model, other = layers(), layers()
    compiled = thunder.compile(model, plugins="quantize-int4")
    compiled.load_original_state_dict(other.state_dict())
    x = torch.randn(5, 128)
    torch.testing.assert_close(compiled(x), quantized(other)(x))
    torch.testing.assert_close(compiled.original_state_dict(), quantized(other).state_dict())


def test_tied_weights_are_packed_once() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=64, n_positions=16)).eval()
    compiled = thunder.compile(model, plugins="quantize-int4")
    assert compiled.lm_head.weight is compiled.transformer.wte.weight
    expected = quantized(model)
    expected.transformer.wte.weight = expected.lm_head.weight
    prompt = torch.arange(6).unsqueeze(0)
    torch.testing.assert_close(compiled(prompt).logits, expected(prompt).logits)


def test_gradients_pass_int4_weights() -> None:
    model = quantized(layers())
    assert_as_eager(model, torch.randn(3, 128, requires_grad=True))
    compiled, x = thunder.compile(model, plugins="quantize-int4"), torch.randn(3, 128, requires_grad=True)
    (got,) = torch.autograd.grad(compiled(x).sum(), x)
    (expected,) = torch.autograd.grad(model(x).sum(), x)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("group", [1, 3])
def test_int4_groups_are_even(group: int) -> None:
    with pytest.raises(ValueError, match="group: expected an even number"):
        plugins.QuantizeInt4(group)
