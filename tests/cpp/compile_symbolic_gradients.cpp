// Computations with symbols, differentiated and compiled once, and compared at many sizes with PyTorch's autograd.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "compile/compiler.h"
#include "compile/executor_list.h"
#include "ir/trace_sizes.h"
#include "ir/verifier.h"
#include "symbolic_program.h"

namespace thunder::compile {
namespace {

using ir::Argument;
using ir::ArgumentList;
using ir::Dim;
using ir::Dims;
using ir::None;
using ir::ValueId;
using Program = check::SymbolicProgram;
using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors& inputs)>;

constexpr std::int64_t kSizesOfGradients[][2] = {{2, 2}, {3, 64}, {64, 3}, {7, 100}, {17, 17}, {33, 17}, {130, 257}};

/// Marks what a gradient is asked for, and all that is computed from it.
void require_grad(Program& program) {
  const auto mark = [&](ValueId id) {
    ir::TensorType type = program.type_of(id);
    type.requires_grad = ir::is_floating_point(type.dtype);
    program.trace.set_type(id, ir::make_type(std::move(type)));
  };
  const auto is_marked = [&](ValueId id) { return program.type_of(id).requires_grad; };
  std::ranges::for_each(program.trace.inputs, mark);
  for (const ir::BoundSymbol& symbol : program.trace.symbols) {
    bool follows = false;
    for (const Argument& argument : symbol.arguments) {
      ir::for_each_value(argument, [&](ValueId id) { follows = follows || is_marked(id); });
    }
    if (!follows) continue;
    for (const Argument& result : symbol.results) ir::for_each_value(result, mark);
  }
}

Tensors sample_inputs(const ir::Trace& sized) {
  Tensors inputs;
  for (const ValueId input : sized.inputs) {
    inputs.push_back(check::sample(*sized.tensor_type(input)));
    inputs.back().requires_grad_(inputs.back().is_floating_point());
  }
  return inputs;
}

/// Compares results and gradients. `skipped`: an output that no cotangent comes for.
void check_at(const Compiled& compiled, const Tensors& inputs, const Function& function, std::size_t skipped,
              const std::string& text) {
  const Tensors expected = function(inputs);
  const Tensors results = compiled.run(inputs);
  Tensors leaves;
  std::ranges::copy_if(inputs, std::back_inserter(leaves), [](const at::Tensor& t) { return t.requires_grad(); });
  Tensors cotangents;
  Tensors ours;
  Tensors theirs;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    check::equal_tensors(results[i].detach(), expected[i].detach(), text);
    if (i == skipped) continue;
    cotangents.push_back(at::randn_like(expected[i]));
    ours.push_back(results[i]);
    theirs.push_back(expected[i]);
  }
  const auto gradients_of = [&](const Tensors& outputs) {
    return torch::autograd::grad(outputs, leaves, cotangents, std::nullopt, false, /*allow_unused=*/true);
  };
  const Tensors got = gradients_of(ours);
  const Tensors wanted = gradients_of(theirs);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK_EQ(got[i].defined(), wanted[i].defined());
    if (!got[i].defined() || !wanted[i].defined()) continue;
    if (!at::allclose(got[i], wanted[i], 1e-3, 1e-4)) {
      check::report_failure(__FILE__, __LINE__, "another gradient of input " + std::to_string(i) + " at " + text);
    }
  }
}

void check(Program& program, const std::vector<ValueId>& outputs, const Function& function,
           std::size_t skipped = static_cast<std::size_t>(-1)) {
  for (const ValueId output : outputs) program.trace.outputs.emplace_back(output);
  require_grad(program);
  ir::verify(program.trace, "test");
  for (const passes::Recompute rematerialize : {passes::Recompute::kFast, passes::Recompute::kNothing}) {
    Options options;
    options.executors = with_fallback({find_executor("cpu")});
    options.verify = true;
    options.rematerialize = rematerialize;
    const auto compiled = compile(program.trace, options);
    for (const auto& sizes : kSizesOfGradients) {
      const std::string text = std::to_string(sizes[0]) + " and " + std::to_string(sizes[1]);
      check_at(*compiled, sample_inputs(ir::at_sizes(program.trace, sizes)), function, skipped, text);
    }
  }
}

}  // namespace

TEST(symbolic_gradients_of_elements_that_broadcast) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId x = p.input(sizes);
  const ValueId row = p.input({p.columns});
  const ValueId column = p.input({p.rows, 1});
  const ValueId number = p.input({1, 1});
  const ValueId scaled = p.call("aten::mul", "Tensor", {x, row}, sizes);
  const ValueId moved = p.call("aten::add", "Tensor", {scaled, column}, sizes);
  const ValueId all = p.call("aten::mul", "Tensor", {moved, number}, sizes);
  check(p, {p.call("aten::gelu", "", {all}, sizes), p.call("aten::tanh", "", {moved}, sizes)}, [](const Tensors& in) {
    const at::Tensor moved = in[0] * in[1] + in[2];
    return Tensors{at::gelu(moved * in[3]), at::tanh(moved)};
  });
}

TEST(gradients_where_one_result_has_no_cotangent) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId x = p.input(sizes);
  const ValueId row = p.input({p.columns});
  const ValueId product = p.call("aten::mul", "Tensor", {x, row}, sizes);
  const ValueId sum = p.call("aten::sum", "", {p.call("aten::exp", "", {x}, sizes)}, Dims{});
  check(
      p, {p.call("aten::sin", "", {product}, sizes), sum},
      [](const Tensors& in) { return Tensors{at::sin(in[0] * in[1]), in[0].exp().sum()}; }, 0);
}

TEST(gradients_of_reductions) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId x = p.input(sizes);
  const ValueId y = p.call("aten::sin", "", {x}, sizes);
  const ArgumentList last{-1};
  const ArgumentList first{0};
  check(p,
        {p.call("aten::mean", "dim", {y, Argument(last), true}, {p.rows, 1}),
         p.call("aten::amax", "", {x, Argument(last)}, {p.rows}),  // several sines round to 1
         p.call("aten::sum", "dim_IntList", {y, Argument(first)}, {p.columns}), p.call("aten::mean", "", {y}, Dims{}),
         p.call("aten::sum", "", {y}, Dims{})},
        [](const Tensors& in) {
          const at::Tensor y = at::sin(in[0]);
          return Tensors{y.mean(-1, true), in[0].amax(-1), y.sum(0), y.mean(), y.sum()};
        });
}

TEST(gradients_of_a_softmax) {
  Program p;
  const Dims sizes{p.rows, 3, p.columns};
  const ValueId x = p.input(sizes);
  const ValueId scaled = p.call("aten::mul", "Scalar", {x, 0.5}, sizes);
  const ValueId shares = p.call("aten::softmax", "int", {scaled, -1, None{}}, sizes);
  check(p, {p.call("aten::mul", "Tensor", {shares, x}, sizes)},
        [](const Tensors& in) { return Tensors{at::softmax(in[0] * 0.5, -1) * in[0]}; });
}

TEST(symbolic_gradients_of_a_layer_norm) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId x = p.input(sizes);
  const ValueId weight = p.input({p.columns});
  const ValueId bias = p.input({p.columns});
  const ArgumentList shape{Argument(p.columns)};
  const double epsilon = 0.1;  // rows of two almost equal elements stay well-conditioned
  const ValueId normal = p.call("aten::layer_norm", "", {x, Argument(shape), weight, bias, epsilon}, sizes);
  check(p, {p.call("aten::gelu", "", {normal}, sizes)}, [&](const Tensors& in) {
    return Tensors{at::gelu(at::layer_norm(in[0], {in[0].size(1)}, in[1], in[2], epsilon))};
  });
}

TEST(gradients_of_matmuls) {
  Program p;
  const Dim tokens = p.rows * p.columns;
  const ValueId x = p.input({p.rows, p.columns, 32});
  const ValueId weight = p.input({16, 32});
  const ValueId bias = p.input({16});
  const Dims sizes{p.rows, p.columns, 16};
  const ValueId keys = p.call("aten::linear", "", {x, weight, bias}, sizes);
  ir::TensorType type = p.type_of(keys);
  std::swap(type.sizes[1], type.sizes[2]);
  std::swap(type.strides[1], type.strides[2]);
  const ValueId turned = p.call("aten::transpose", "int", {keys, 1, 2}, ir::make_type(type));
  const Dims square{p.rows, p.columns, p.columns};
  const ValueId products = p.call("aten::matmul", "", {keys, turned}, square);
  const ValueId scores = p.call("aten::mul", "Scalar", {products, 0.002}, square);  // stays well-conditioned
  const ValueId shares = p.call("aten::softmax", "int", {scores, -1, None{}}, square);
  const ValueId mixed = p.call("aten::matmul", "", {shares, keys}, sizes);
  const ArgumentList flat{Argument(tokens), 16};
  check(p, {p.call("aten::view", "", {mixed, Argument(flat)}, {tokens, 16})}, [](const Tensors& in) {
    const at::Tensor keys = at::linear(in[0], in[1], in[2]);
    const at::Tensor shares = at::softmax(at::matmul(keys, keys.transpose(1, 2)) * 0.002, -1);
    return Tensors{at::matmul(shares, keys).view({-1, 16})};
  });
}

TEST(gradients_of_a_concatenation_of_views) {
  Program p;
  const ValueId x = p.input({p.rows, p.columns});
  const ValueId y = p.input({p.columns, p.rows});
  ir::TensorType type = p.type_of(y);
  std::swap(type.sizes[0], type.sizes[1]);
  std::swap(type.strides[0], type.strides[1]);
  const ValueId turned = p.call("aten::t", "", {y}, ir::make_type(type));
  const Dims both{p.rows, p.columns + p.columns};
  const ArgumentList parts{x, turned};
  const ValueId joined = p.call("aten::cat", "", {Argument(parts), 1}, both);
  check(p, {p.call("aten::tanh", "", {joined}, both)},
        [](const Tensors& in) { return Tensors{at::tanh(at::cat({in[0], in[1].t()}, 1))}; });
}

TEST(gradients_of_expanded_and_flattened_views) {
  Program p;
  const ValueId x = p.input({p.columns, 4});
  const Dims more{p.rows, p.columns, 4};
  ir::TensorType type = p.type_of(x);
  type.sizes = more;
  type.strides = {0, 4, 1};
  const ArgumentList shape{Argument(p.rows), Argument(p.columns), 4};
  const ValueId expanded = p.call("aten::expand", "", {x, Argument(shape)}, ir::make_type(type));
  const ValueId z = p.input(more);
  const ValueId product = p.call("aten::mul", "Tensor", {expanded, z}, more);
  const ArgumentList flat{Argument(p.rows * p.columns * Dim(4))};
  check(p, {p.call("aten::reshape", "", {product, Argument(flat)}, {p.rows * p.columns * Dim(4)})},
        [](const Tensors& in) { return Tensors{(in[0].expand_as(in[1]) * in[1]).reshape({-1})}; });
}

TEST(gradient_of_an_embedding_and_a_loss) {
  Program p;
  const ValueId table = p.input({5, 32});
  const ValueId indices = p.input({p.rows, p.columns}, ir::Dtype::kInt64);
  const ValueId targets = p.input({p.rows * p.columns}, ir::Dtype::kInt64);
  const ValueId rows = p.call("aten::embedding", "", {table, indices}, {p.rows, p.columns, 32});
  const ArgumentList flat{Argument(p.rows * p.columns), 32};
  const ValueId logits = p.call("aten::view", "", {rows, Argument(flat)}, {p.rows * p.columns, 32});
  check(p, {p.call("aten::cross_entropy_loss", "", {logits, targets, None{}, 1, -100, 0.0}, Dims{})},
        [](const Tensors& in) {
          return Tensors{at::cross_entropy_loss(at::embedding(in[0], in[1]).view({-1, 32}), in[2])};
        });
}

TEST(a_derivative_with_a_number_that_is_no_size_is_refused_by_name) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId x = p.input(sizes);
  const ArgumentList last{-1};
  p.trace.outputs = {Argument(p.call("aten::var", "correction", {x, Argument(last), 3}, {p.rows}))};
  require_grad(p);
  std::string message;
  try {
    static_cast<void>(compile(p.trace, Options()));
  } catch (const UserError& error) {
    message = error.what();
  }
  CHECK(message.find("aten::") != std::string::npos);
}

TEST(a_derivative_of_a_slice_is_refused_where_a_size_is_one) {
  Program p;
  const ValueId x = p.input({p.rows, p.columns});
  ir::TensorType type = p.type_of(x);
  type.sizes[1] = p.columns - 1;
  type.storage_offset = 1;
  const ValueId slice = p.call("aten::slice", "Tensor", {x, 1, 1, Argument(p.columns)}, ir::make_type(type));
  p.trace.outputs = {Argument(p.call("aten::sin", "", {slice}, {p.rows, p.columns - 1}))};
  require_grad(p);
  const auto compiled = compile(p.trace, Options());
  for (const auto& sizes : {std::pair(4, 3), std::pair(5, 40)}) {
    const at::Tensor input = at::randn({sizes.first, sizes.second}).requires_grad_();
    check_at(*compiled, {input}, [](const Tensors& in) { return Tensors{at::sin(in[0].slice(1, 1))}; }, 7, "a slice");
  }
  CHECK_THROWS(compiled->run({at::randn({4, 2}).requires_grad_()}), c10::Error);
}

}  // namespace thunder::compile
