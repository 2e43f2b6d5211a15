// Derivatives with symbols, made by hand: compiled once, and compared at many sizes with those of PyTorch's autograd.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/executor_list.h"
#include "ir/trace_sizes.h"
#include "ir/verifier.h"
#include "kernels_on_host.h"
#include "symbolic_program.h"

namespace thunder::compile {
namespace {

using ir::Argument;
using ir::ArgumentList;
using ir::Dims;
using ir::ValueId;
using Program = check::SymbolicProgram;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kSizesOfBackwards[][2] = {{2, 2}, {3, 64}, {64, 3}, {7, 100}, {33, 17}, {130, 257}};
constexpr std::int64_t kSizesOfBackwardKernels[][2] = {{3, 64}, {33, 17}};  // each compiles

using Sizes = std::span<const std::int64_t[2]>;

/// The first input of a program is the cotangent of what `function` gives for the others.
void check_gradients(Program& program, const std::vector<ValueId>& gradients,
                     const std::function<at::Tensor(const Tensors&)>& function) {
  for (const ValueId gradient : gradients) program.trace.outputs.emplace_back(gradient);
  ir::verify(program.trace, "test");
  register_executor(check::kKernelsOnHost);
  for (const char* executor : {"cpu", "reference", "cuda_on_host"}) {
    Options options;
    options.executors = with_fallback({find_executor(executor)});
    options.background = false;
    options.verify = true;
    const auto compiled = compile(program.trace, options);
    const bool compiles_kernels = std::string_view(executor) == "cuda_on_host";
    for (const auto& sizes : compiles_kernels ? Sizes(kSizesOfBackwardKernels) : Sizes(kSizesOfBackwards)) {
      const ir::Trace sized = ir::at_sizes(program.trace, sizes);
      Tensors inputs;
      Tensors leaves;
      for (const ValueId input : sized.inputs) {
        inputs.push_back(check::sample(*sized.tensor_type(input)));
        const bool is_leaf = inputs.size() > 1 && inputs.back().is_floating_point();
        if (is_leaf) leaves.push_back(inputs.back().requires_grad_());
      }
      const at::Tensor output = function(Tensors(inputs.begin() + 1, inputs.end()));
      const Tensors expected = torch::autograd::grad({output}, leaves, {inputs[0]});
      for (at::Tensor& input : inputs) input = input.detach();
      const Tensors results = compiled->run(inputs);
      const std::string text = std::to_string(sizes[0]) + " and " + std::to_string(sizes[1]);
      for (std::size_t i = 0; i < results.size(); ++i) check::equal_tensors(results[i], expected[i], text);
    }
  }
}

}  // namespace

TEST(gradients_of_elements_that_broadcast) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId g = p.input(sizes);
  const ValueId x = p.input(sizes);
  const ValueId w = p.input({p.columns});
  const ValueId b = p.input({p.rows, 1});
  const ValueId scaled = p.call("aten::mul", "Tensor", {x, w}, sizes);
  const ValueId y = p.call("aten::tanh", "", {p.call("aten::add", "Tensor", {scaled, b}, sizes)}, sizes);
  const ValueId inner = p.call("aten::tanh_backward", "", {g, y}, sizes);
  const ValueId of_products = p.call("aten::mul", "Tensor", {inner, x}, sizes);
  check_gradients(p,
                  {p.call("aten::mul", "Tensor", {inner, w}, sizes),
                   p.call("aten::sum", "dim_IntList", {of_products, Argument(ArgumentList{0})}, {p.columns}),
                   p.call("aten::sum", "dim_IntList", {inner, Argument(ArgumentList{1}), true}, {p.rows, 1})},
                  [](const Tensors& in) { return at::tanh(in[0] * in[1] + in[2]); });
}

TEST(gradient_of_a_softmax) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId g = p.input(sizes);
  const ValueId x = p.input(sizes);
  const ValueId shares =
      p.call("aten::_softmax", "", {p.call("aten::mul", "Scalar", {x, 0.5}, sizes), -1, false}, sizes);
  const ValueId inner = p.call("aten::_softmax_backward_data", "", {g, shares, -1, ir::Dtype::kFloat32}, sizes);
  check_gradients(p, {p.call("aten::mul", "Scalar", {inner, 0.5}, sizes)},
                  [](const Tensors& in) { return at::softmax(in[0] * 0.5, -1); });
}

TEST(gradients_of_a_layer_norm) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId g = p.input(sizes);
  const ValueId x = p.input(sizes);
  const ValueId w = p.input({p.columns});
  const ValueId b = p.input({p.columns});
  const Argument shape(ArgumentList{Argument(p.columns)});
  const double epsilon = 0.1;  // gradients of rows of two almost equal elements stay well-conditioned
  const auto normal =
      p.call_for_all("aten::native_layer_norm", {x, shape, w, b, epsilon}, {sizes, {p.rows, 1}, {p.rows, 1}});
  const Argument all(ArgumentList{true, true, true});
  check_gradients(p,
                  p.call_for_all("aten::native_layer_norm_backward", {g, x, shape, normal[1], normal[2], w, b, all},
                                 {sizes, {p.columns}, {p.columns}}),
                  [&](const Tensors& in) { return at::layer_norm(in[0], {in[0].size(1)}, in[1], in[2], epsilon); });
}

TEST(gradients_of_a_matmul_with_an_activation) {
  Program p;
  const Dims result{p.rows, 16};
  const ValueId g = p.input(result);
  const ValueId x = p.input({p.rows, p.columns});
  const ValueId w = p.input({p.columns, 16});
  const ValueId y = p.call("aten::mm", "", {x, w}, result);
  const ValueId inner = p.call("aten::gelu_backward", "", {g, y}, result);
  const auto transposed = [&](ValueId matrix) {
    ir::TensorType type = p.type_of(matrix);
    std::swap(type.sizes[0], type.sizes[1]);
    std::swap(type.strides[0], type.strides[1]);
    return p.call("aten::t", "", {matrix}, ir::make_type(type));
  };
  check_gradients(p,
                  {p.call("aten::mm", "", {inner, transposed(w)}, {p.rows, p.columns}),
                   p.call("aten::mm", "", {transposed(x), inner}, {p.columns, 16})},
                  [](const Tensors& in) { return at::gelu(at::mm(in[0], in[1])); });
}

TEST(gradient_of_a_slice) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const Dims part{p.rows, p.columns - 1};
  const ValueId g = p.input(part);
  const ValueId x = p.input(sizes);
  ir::TensorType type = p.type_of(x);
  type.sizes[1] = p.columns - 1;
  type.storage_offset = 1;
  const ValueId slice = p.call("aten::slice", "Tensor", {x, 1, 1, Argument(p.columns)}, ir::make_type(type));
  const ValueId cosine = p.call("aten::cos", "", {slice}, part);
  const ValueId inner = p.call("aten::mul", "Tensor", {g, cosine}, part);
  const Argument shape(ArgumentList{Argument(p.rows), Argument(p.columns)});
  check_gradients(p, {p.call("aten::slice_backward", "", {inner, shape, 1, 1, Argument(p.columns), 1}, sizes)},
                  [](const Tensors& in) { return at::sin(in[0].slice(1, 1)); });
}

TEST(gradients_of_a_concatenation) {
  Program p;
  const ValueId g = p.input({p.rows + p.columns, 32});
  const ValueId x = p.input({p.rows, 32});
  const ValueId y = p.input({p.columns, 32});
  const auto part = [&](const ir::Dim& begin, const ir::Dim& end, ValueId of) {
    ir::TensorType type = p.type_of(of);
    type.storage_offset = begin * 32;
    const ValueId slice = p.call("aten::slice", "Tensor", {g, 0, Argument(begin), Argument(end)}, ir::make_type(type));
    const ValueId exp = p.call("aten::exp", "", {of}, p.type_of(of).sizes);
    return p.call("aten::mul", "Tensor", {slice, exp}, p.type_of(of).sizes);
  };
  check_gradients(p, {part(0, p.rows, x), part(p.rows, p.rows + p.columns, y)},
                  [](const Tensors& in) { return at::cat({at::exp(in[0]), at::exp(in[1])}); });
}

TEST(gradient_of_an_embedding) {
  Program p;
  const Dims sizes{p.rows, p.columns, 32};
  const ValueId g = p.input(sizes);
  p.input({5, 32});
  const ValueId indices = p.input({p.rows, p.columns}, ir::Dtype::kInt64);
  const ValueId inner = p.call("aten::mul", "Scalar", {g, 0.5}, sizes);
  check_gradients(p, {p.call("aten::embedding_dense_backward", "", {inner, indices, 5, -1, false}, {5, 32})},
                  [](const Tensors& in) { return at::embedding(in[0], in[1]) * 0.5; });
}

TEST(gradient_of_a_mean) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId g = p.input({p.rows, 1});
  const ValueId x = p.input(sizes);
  const ValueId inner = p.call("aten::div", "Scalar", {g, Argument(p.columns)}, {p.rows, 1});
  const ValueId cosine = p.call("aten::cos", "", {x}, sizes);
  check_gradients(p, {p.call("aten::mul", "Tensor", {inner, cosine}, sizes)},
                  [](const Tensors& in) { return at::sin(in[0]).mean(1, true); });
}

}  // namespace thunder::compile
