// Linear layers of one input that run as one, compared with PyTorch's results.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/execution.h"
#include "compile/executor_list.h"
#include "compile/pass_runner.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "kernels_on_host.h"
#include "passes/dead_code_elimination.h"
#include "passes/merged_linears.h"
#include "random_tensors.h"
#include "recorded_program.h"
#include "rewritten_program.h"

namespace thunder::compile {
namespace {

using check::count_of;
using check::real;
using check::Tensors;

constexpr passes::MergeRule kAll{.most_multiplications = 1e12, .copies_weights = true};

/// The program with its layers merged; as recorded where none are.
ir::Trace merged(const Tensors& inputs, const check::TensorFunction& function, const passes::MergeRule& rule = kAll) {
  const ir::Trace trace = check::recorded(function, inputs);
  const auto accepts = [](const ir::TensorType&) { return true; };
  const auto made = passes::merge_linears(trace, rule, accepts, &find_operator);
  if (!made) return trace;
  ir::verify(*made, "test");
  return passes::kDeadCodeElimination.run(*made, &find_operator);
}

/// How many linear layers are left; compares the results.
std::size_t layers_left(const Tensors& inputs, const check::TensorFunction& function,
                        const passes::MergeRule& rule = kAll) {
  const ir::Trace made = merged(inputs, function, rule);
  const Tensors results = check::results_of(made, inputs);
  const Tensors expected = function(inputs);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(results[i].sizes() == expected[i].sizes());
    CHECK(results[i].strides() == expected[i].strides());
    CHECK(at::allclose(results[i].to(at::kDouble), expected[i].to(at::kDouble), 1e-5, 1e-5));
  }
  return count_of(made, "aten::linear");
}

/// An input of 2 × 5 × 6 elements, and three layers of 8, 4 and 4 columns with biases.
Tensors layers() {
  return {real({2, 5, 6}), real({8, 6}), real({8}), real({4, 6}), real({4}), real({4, 6}), real({4})};
}

at::Tensor heads(const at::Tensor& x) { return x.view({2, 5, -1, 4}).transpose(1, 2); }

Tensors projected_attention(const Tensors& x) {
  const at::Tensor query = heads(at::linear(x[0], x[1], x[2]));
  const at::Tensor key = heads(at::linear(x[0], x[3], x[4]));
  const at::Tensor value = heads(at::linear(x[0], x[5], x[6]));
  const at::Tensor scores = at::softmax(at::matmul(query, key.transpose(-2, -1)), -1);
  return {at::matmul(scores, value).transpose(1, 2).reshape({2, 5, 8})};
}

Tensors gated(const Tensors& x) {
  return {at::silu(at::linear(x[0], x[1], x[2])) * at::cat({at::linear(x[0], x[3], x[4]), at::linear(x[0], x[5])}, -1)};
}

}  // namespace

TEST(queries_keys_and_values_are_columns_of_one_matrix) {
  CHECK_EQ(layers_left(layers(), &projected_attention), std::size_t{1});
  const ir::Trace made = merged(layers(), &projected_attention);
  CHECK(ir::print(made, {.locations = false, .deletions = false}).find("split_with_sizes") != std::string::npos);
}

TEST(views_of_columns_have_the_strides_of_the_wider_matrix) {
  const auto function = [](const Tensors& x) {
    const at::Tensor first = at::linear(x[0], x[1], x[2]).view({10, 2, 4}).slice(1, 1, 2).select(0, 3);
    const at::Tensor second = at::linear(x[0], x[3], x[4]).unsqueeze(0).expand({3, 2, 5, 4}).permute({3, 2, 1, 0});
    return Tensors{first * 2, second + 1};
  };
  const Tensors inputs = layers();
  CHECK_EQ(layers_left(inputs, function), std::size_t{1});
  const ir::Trace made = merged(inputs, function);
  for (const ir::BoundSymbol& symbol : made.symbols) {
    if (symbol.op->name != "aten::select") continue;
    const ir::TensorType& type = *made.tensor_type(*symbol.results[0].get<ir::ValueId>());
    CHECK(type.strides == ir::Dims({4, 1}));
    CHECK(type.storage_offset == ir::Dim(3 * 12 + 4));
  }
}

TEST(only_layers_with_biases_of_one_kind_are_merged) {
  CHECK_EQ(layers_left(layers(), &gated), std::size_t{2});
  const auto without = [](const Tensors& x) {
    return Tensors{at::silu(at::linear(x[0], x[3])) * at::linear(x[0], x[5])};
  };
  CHECK_EQ(layers_left(layers(), without), std::size_t{1});
}

TEST(casts_of_weights_are_one_cast_of_them_all) {
  const auto function = [](const Tensors& x) {
    const at::Tensor input = x[0].to(at::kDouble);
    const auto layer = [&](std::size_t i) { return at::linear(input, x[i].to(at::kDouble), x[i + 1].to(at::kDouble)); };
    return Tensors{layer(3) * layer(5)};
  };
  passes::MergeRule rule = kAll;
  rule.copies_weights = false;
  CHECK_EQ(layers_left(layers(), function, rule), std::size_t{1});
  CHECK_EQ(count_of(merged(layers(), function, rule), "aten::to"), std::size_t{3});
  CHECK_EQ(layers_left(layers(), &projected_attention, rule), std::size_t{3});
}

TEST(layers_whose_results_somebody_sees_stay) {
  const auto stays = [](const check::TensorFunction& function) { return layers_left(layers(), function) == 2; };
  const auto layer = [](const Tensors& x, std::size_t i) { return at::linear(x[0], x[i], x[i + 1]); };
  CHECK(stays([&](const Tensors& x) { return Tensors{layer(x, 3), layer(x, 5)}; }));
  CHECK(stays([&](const Tensors& x) { return Tensors{layer(x, 3).transpose(0, 1), layer(x, 5) * 2}; }));
  CHECK(stays([&](const Tensors& x) { return Tensors{layer(x, 3).view({-1}) * 2, layer(x, 5) * 2}; }));
  CHECK(stays([&](const Tensors& x) { return Tensors{layer(x, 3).as_strided({2}, {3}) * 2, layer(x, 5) * 2}; }));
  CHECK(stays([&](const Tensors& x) {
    const at::Tensor scattered = at::select_scatter(layer(x, 3), layer(x, 5).select(1, 0), 1, 0);
    return Tensors{scattered};
  }));
  CHECK(stays([&](const Tensors& x) { return Tensors{layer(x, 3).detach() * 2, layer(x, 5) * 2}; }));
  CHECK(
      stays([&](const Tensors& x) { return Tensors{layer(x, 3) * 2, layer(x, 5).transpose(0, 1).reshape({-1}) * 2}; }));
}

TEST(layers_that_are_too_large_or_too_small_stay) {
  const auto function = [](const Tensors& x) { return Tensors{at::linear(x[0], x[3]) * at::linear(x[0], x[5])}; };
  const auto left = [&](const passes::MergeRule& rule) { return layers_left(layers(), function, rule); };
  CHECK_EQ(left({.most_multiplications = 240, .copies_weights = true}), std::size_t{1});
  CHECK_EQ(left({.most_multiplications = 239, .copies_weights = true}), std::size_t{2});
  const auto five = [](const Tensors& x) {
    at::Tensor sum = at::linear(x[0], x[3]);
    for (const std::size_t i : {5, 3, 5, 3}) sum = sum + at::linear(x[0], x[i]);
    return Tensors{sum};
  };
  // Four of them, and the last one.
  CHECK_EQ(layers_left(layers(), five, {.most_multiplications = 240, .copies_weights = true}), std::size_t{2});
  CHECK_EQ(left({.most_multiplications = 240, .least_rows = 11, .copies_weights = true}), std::size_t{2});
  CHECK_EQ(left({.most_multiplications = 240, .least_columns = 7, .copies_weights = true}), std::size_t{2});
  CHECK_EQ(left({.most_multiplications = 240, .width_multiple = 8, .copies_weights = true}), std::size_t{2});
}

TEST(a_step_takes_two_matmuls_for_all_gradients) {
  register_executor(check::kKernelsOnHost);
  // With other numbers a norm halfway between two values of bfloat16 may be rounded to either.
  at::manual_seed(1);
  const at::ScalarType narrow = at::kBFloat16;
  Tensors inputs{real({2, 32, 256})};
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(real({64, 256}) / 16);
    inputs.push_back(real({64}));
  }
  for (at::Tensor& input : inputs) input.requires_grad_();
  const auto function = [&](const Tensors& x) {
    const at::Tensor input = at::layer_norm(x[0], {256});
    const auto layer = [&](std::size_t i) {
      const at::Tensor y = at::linear(input.to(narrow), x[i].to(narrow), x[i + 1].to(narrow));
      return y.view({2, 32, 4, 16}).transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(layer(1), layer(3), layer(5));
    return Tensors{mixed.transpose(1, 2).reshape({2, 32, 64}).to(at::kFloat)};
  };
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  options.verify = true;
  const auto compiled = compile(check::recorded(function, inputs), options);
  const Tensors results = compiled->run(inputs);
  const Tensors expected = function(inputs);
  const at::Tensor cotangent = at::randn_like(expected[0]);
  const Tensors got = torch::autograd::grad({results[0]}, inputs, {cotangent});
  const Tensors wanted = torch::autograd::grad({expected[0]}, inputs, {cotangent});
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK(got[i].strides() == wanted[i].strides() && got[i].scalar_type() == wanted[i].scalar_type());
    // The gradient of the keys' bias is zero, but for rounding.
    CHECK((got[i] - wanted[i]).norm().item<double>() <= 2e-2 * wanted[i].norm().item<double>() + 2e-2);
  }
  CHECK_EQ(count_of(compiled->forward_traces().back(), "aten::addmm"), std::size_t{1});
  CHECK_EQ(count_of(compiled->backward_traces().back(), "aten::mm"), std::size_t{2});
  // The norm, and all casts of weights and biases; the joined gradients with their sums, and that of the norm.
  CHECK_EQ(count_of(compiled->forward_traces().back(), "prims::fused"), std::size_t{2});
  CHECK_EQ(count_of(compiled->backward_traces().back(), "prims::fused"), std::size_t{2});
}

TEST(weights_that_are_made_later_stay) {
  const auto function = [](const Tensors& x) {
    const at::Tensor first = at::linear(x[0], x[3]).tanh();
    return Tensors{first * at::linear(x[0], x[5] * first.sum())};
  };
  CHECK_EQ(layers_left(layers(), function), std::size_t{2});
}

}  // namespace thunder::compile
