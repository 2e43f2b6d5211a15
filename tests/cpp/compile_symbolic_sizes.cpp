// Traces with symbols, made by hand: compiled once, and run at many sizes.
#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/executor_list.h"
#include "executors/api/lowering.h"
#include "fusion/region.h"
#include "ir/trace_sizes.h"
#include "ir/verifier.h"
#include "kernels_on_host.h"
#include "symbolic_program.h"

namespace thunder::compile {
namespace {

using ir::Argument;
using ir::ArgumentList;
using ir::Dim;
using ir::Dims;
using ir::Trace;
using ir::ValueId;
using Program = check::SymbolicProgram;

constexpr std::int64_t kSizes[][2] = {{2, 2}, {3, 64}, {64, 3}, {7, 100}, {16, 129}, {33, 17}, {130, 257}};
constexpr std::int64_t kSizesOfKernels[][2] = {{3, 64}, {7, 100}, {130, 257}};  // each compiles

/// Compiles the program once for an executor, and compares it at each size with PyTorch's operations.
void check_with(const char* executor, const Trace& trace, bool fuses, std::span<const std::int64_t[2]> all = kSizes) {
  ir::verify(trace, "test");
  Options options;
  options.executors = with_fallback({find_executor(executor)});
  options.background = false;
  options.verify = true;
  const auto compiled = compile(trace, options);
  const auto is_fused = [](const ir::BoundSymbol& symbol) { return symbol.op == fusion::fused_operator(); };
  CHECK_EQ(std::ranges::any_of(compiled->forward_traces().back().symbols, is_fused), fuses);
  for (const auto& sizes : all) {
    const Trace sized = ir::at_sizes(trace, sizes);
    std::vector<at::Tensor> inputs;
    for (const ValueId input : sized.inputs) inputs.push_back(check::sample(*sized.tensor_type(input)));
    std::vector<at::Tensor> given = inputs;
    std::vector<at::Tensor> expected(trace.outputs.size());
    executors::lower_operators(sized).run(std::span(given), std::span(expected));
    const std::vector<at::Tensor> results = compiled->run(inputs);
    const std::string text = std::to_string(sizes[0]) + " and " + std::to_string(sizes[1]);
    for (std::size_t i = 0; i < results.size(); ++i) check::equal_tensors(results[i], expected[i], text);
  }
}

void check(Program& program, std::vector<ValueId> outputs, bool fuses = true) {
  for (const ValueId output : outputs) program.trace.outputs.emplace_back(output);
  check_with("cpu", program.trace, fuses);
  if (!fuses) return;
  register_executor(check::kKernelsOnHost);
  check_with("reference", program.trace, fuses);
  check_with("cuda_on_host", program.trace, fuses, kSizesOfKernels);
}

}  // namespace

TEST(elements_that_broadcast) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId x = p.input(sizes);
  const ValueId row = p.input({p.columns});
  const ValueId column = p.input({p.rows, 1});
  const ValueId scaled = p.call("aten::mul", "Tensor", {x, row}, sizes);
  const ValueId moved = p.call("aten::add", "Tensor", {scaled, column}, sizes);
  check(p, {p.call("aten::gelu", "", {moved}, sizes), p.call("aten::exp", "", {moved}, sizes)});
}

TEST(elements_of_a_transposed_tensor) {
  Program p;
  ir::TensorType type = std::get<ir::TensorType>(*ir::tensor_type(ir::Dtype::kFloat32, {p.rows, p.columns}));
  type.strides = {1, p.rows};
  const ValueId x = p.trace.add_input(ir::make_type(type));
  const ValueId y = p.call("aten::exp", "", {x}, ir::make_type(type));
  check(p, {p.call("aten::mul", "Tensor", {y, x}, ir::make_type(type))});
}

TEST(reductions_of_rows_columns_and_everything) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId x = p.input(sizes);
  const ValueId y = p.call("aten::sin", "", {x}, sizes);
  const ArgumentList last{-1};
  const ArgumentList first{0};
  check(p,
        {p.call("aten::mean", "dim", {y, Argument(last), true}, {p.rows, 1}),
         p.call("aten::amax", "", {y, Argument(last)}, {p.rows}),
         p.call("aten::sum", "dim_IntList", {y, Argument(first)}, {p.columns}), p.call("aten::mean", "", {y}, Dims{}),
         p.call("aten::var", "correction", {y, Argument(last), 1}, {p.rows})});
}

TEST(softmax_between_elements) {
  Program p;
  const Dims sizes{p.rows, 3, p.columns};
  const ValueId x = p.input(sizes);
  const ValueId scaled = p.call("aten::mul", "Scalar", {x, 0.5}, sizes);
  const ValueId shares = p.call("aten::_softmax", "", {scaled, -1, false}, sizes);
  check(p, {p.call("aten::mul", "Tensor", {shares, x}, sizes)});
}

TEST(layer_norm_of_a_symbolic_row) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId x = p.input(sizes);
  const ValueId weight = p.input({p.columns});
  const ValueId bias = p.input({p.columns});
  const ValueId doubled = p.call("aten::add", "Tensor", {x, x}, sizes);
  const ArgumentList shape{Argument(p.columns)};
  const ValueId normal = p.call("aten::layer_norm", "", {doubled, Argument(shape), weight, bias, 1e-5}, sizes);
  check(p, {p.call("aten::gelu", "", {normal}, sizes)});
}

TEST(batches_as_rows_of_a_matmul) {
  Program p;
  const Dim tokens = p.rows * p.columns;
  const ValueId x = p.input({p.rows, p.columns, 32});
  const ValueId weight = p.input({16, 32});
  const ValueId bias = p.input({16});
  const ArgumentList flat{Argument(tokens), 32};
  const ArgumentList back{Argument(p.rows), Argument(p.columns), 16};
  const ValueId matrix = p.call("aten::view", "", {x, Argument(flat)}, {tokens, 32});
  const ValueId product = p.call("aten::linear", "", {matrix, weight, bias}, {tokens, 16});
  const ValueId active = p.call("aten::silu", "", {product}, {tokens, 16});
  const ValueId doubled = p.call("aten::mul", "Scalar", {active, 2.0}, {tokens, 16});
  check(p, {p.call("aten::view", "", {doubled, Argument(back)}, {p.rows, p.columns, 16})});
}

TEST(matmul_of_symbolic_sizes) {
  Program p;
  const ValueId left = p.input({p.rows, p.columns});
  const ValueId right = p.input({p.columns, 8});
  check(p, {p.call("aten::mm", "", {left, right}, {p.rows, 8})}, /*fuses=*/false);
}

TEST(concatenation_of_symbolic_sizes) {
  Program p;
  const ValueId left = p.input({p.rows, 32});
  const ValueId right = p.input({p.columns, 32});
  const Dims both{p.rows + p.columns, 32};
  const ArgumentList parts{left, right};
  const ValueId joined = p.call("aten::cat", "", {Argument(parts), 0}, both);
  const ValueId active = p.call("aten::tanh", "", {joined}, both);
  check(p, {p.call("aten::mul", "Tensor", {active, joined}, both)});
}

TEST(results_that_are_parts_of_a_symbolic_tensor) {
  Program p;
  const ValueId x = p.input({p.rows, 32});
  const ValueId y = p.input({p.columns, 32});
  const ValueId left = p.call("aten::mul", "Tensor", {p.call("aten::exp", "", {x}, {p.rows, 32}), x}, {p.rows, 32});
  const ValueId right =
      p.call("aten::mul", "Tensor", {p.call("aten::sin", "", {y}, {p.columns, 32}), y}, {p.columns, 32});
  const ArgumentList parts{left, right};
  check(p, {p.call("aten::cat", "", {Argument(parts), 0}, {p.rows + p.columns, 32})});
}

TEST(slices_of_symbolic_sizes) {
  Program p;
  const ValueId x = p.input({p.rows, p.columns});
  ir::TensorType type = p.type_of(x);
  type.sizes[1] = p.columns - 1;
  type.storage_offset = 1;
  const ValueId behind = p.call("aten::slice", "Tensor", {x, 1, 1, Argument(p.columns)}, ir::make_type(type));
  type.storage_offset = 0;
  const ValueId before = p.call("aten::slice", "Tensor", {x, 1, 0, Argument(p.columns - 1)}, ir::make_type(type));
  const Dims sizes{p.rows, p.columns - 1};
  const ValueId difference = p.call("aten::sub", "Tensor", {behind, before}, sizes);
  check(p, {p.call("aten::square", "", {difference}, sizes)});
}

TEST(embedding_of_symbolic_indices) {
  Program p;
  const ValueId table = p.input({5, 32});
  const ValueId indices = p.input({p.rows, p.columns}, ir::Dtype::kInt64);
  const Dims sizes{p.rows, p.columns, 32};
  const ValueId rows = p.call("aten::embedding", "", {table, indices}, sizes);
  check(p, {p.call("aten::mul", "Scalar", {rows, 0.5}, sizes)});
}

TEST(a_size_of_an_input_that_is_not_read) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  static_cast<void>(p.input(sizes));
  const ValueId x = p.input(sizes);
  const ValueId y = p.call("aten::exp", "", {x}, sizes);
  check(p, {p.call("aten::mul", "Tensor", {y, x}, sizes)});
}

TEST(sizes_below_two_are_refused) {
  Program p;
  const ValueId x = p.input({p.rows, p.columns});
  p.trace.outputs = {p.call("aten::exp", "", {x}, {p.rows, p.columns})};
  const auto compiled = compile(p.trace, Options());
  CHECK_THROWS(compiled->run({at::randn({1, 5})}), c10::Error);
}

TEST(an_input_of_another_size_than_the_trace_says_is_refused) {
  Program p;
  const ValueId x = p.input({p.rows, p.columns});
  const ValueId row = p.input({p.columns});
  p.trace.outputs = {
      p.call("aten::mul", "Tensor", {p.call("aten::exp", "", {x}, {p.rows, p.columns}), row}, {p.rows, p.columns})};
  const auto compiled = compile(p.trace, Options());
  CHECK_EQ(compiled->run({at::randn({20, 100}), at::randn({100})})[0].size(1), 100);
  CHECK_THROWS(compiled->run({at::randn({20, 100}), at::randn({99})}), c10::Error);
}

TEST(sizes_that_were_equal_stay_equal) {
  Program p;
  const Dim others = Dim::symbol(2, 24);
  const ValueId x = p.input({p.rows, p.columns});
  const ValueId y = p.input({others, p.columns});
  const ValueId sum = p.call("aten::add", "Tensor", {x, y}, {p.rows, p.columns});
  p.trace.outputs = {p.call("aten::gelu", "", {sum}, {p.rows, p.columns})};
  const auto compiled = compile(p.trace, Options());
  for (const std::int64_t rows : {5, 64}) {
    const at::Tensor left = at::randn({rows, 70});
    const at::Tensor right = at::randn({rows, 70});
    check::equal_tensors(compiled->run({left, right})[0], at::gelu(left + right), std::to_string(rows));
  }
  CHECK_THROWS(compiled->run({at::randn({5, 70}), at::randn({6, 70})}), c10::Error);
}

TEST(a_view_that_divides_a_size_runs_where_that_is_exact) {
  Program p;
  const ValueId x = p.input({p.rows, p.columns});
  const Dims parts{p.rows, floor_divide(p.columns, 4), 4};
  const ArgumentList shape{Argument(parts[0]), Argument(parts[1]), Argument(parts[2])};
  const ValueId view =
      p.call("aten::view", "", {p.call("aten::sin", "", {x}, {p.rows, p.columns}), Argument(shape)}, parts);
  p.trace.outputs = {p.call("aten::exp", "", {view}, parts)};
  Options options;
  options.verify = true;
  const auto compiled = compile(p.trace, options);
  const Trace last = compiled->forward_traces().back();
  CHECK_EQ(last.symbols.size(), 1U);  // the view is inside of the fusion
  for (const std::int64_t columns : {8, 64, 132}) {
    const at::Tensor given = at::randn({20, columns});
    check::equal_tensors(compiled->run({given})[0], at::exp(at::sin(given).view({20, columns / 4, 4})),
                         std::to_string(columns));
  }
  CHECK_THROWS(compiled->run({at::randn({20, 66})}), c10::Error);
}

TEST(a_slice_that_took_everything_runs_where_it_still_does) {
  Program p;
  const ValueId x = p.input({p.rows, p.columns});
  ir::TensorType type = p.type_of(x);
  type.sizes[1] = smaller(p.columns, 128);
  const ValueId slice = p.call("aten::slice", "Tensor", {x, 1, 0, 128}, ir::make_type(type));
  const Dims sizes = type.sizes;
  p.trace.outputs = {p.call("aten::square", "", {p.call("aten::tanh", "", {slice}, sizes)}, sizes)};
  const auto compiled = compile(p.trace, Options());
  CHECK_EQ(compiled->forward_traces().back().conditions.size(), 1U);
  for (const std::int64_t columns : {3, 100, 128}) {
    const at::Tensor given = at::randn({20, columns});
    check::equal_tensors(compiled->run({given})[0], at::square(at::tanh(given)), std::to_string(columns));
  }
  CHECK_THROWS(compiled->run({at::randn({20, 129})}), c10::Error);
}

TEST(a_program_gives_sizes) {
  Program p;
  const Dims sizes{p.rows, p.columns};
  const ValueId x = p.input(sizes);
  p.trace.outputs = {Argument(p.rows * p.columns), p.call("aten::exp", "", {x}, sizes), Argument(p.rows + 1)};
  ir::verify(p.trace, "test");
  const runtime::Program program = executors::lower_trace(p.trace, default_executors());
  for (const auto& [rows, columns] : kSizes) {
    std::vector<c10::IValue> inputs{at::randn({rows, columns})};
    std::vector<c10::IValue> outputs(3);
    program.run(std::span(inputs), std::span(outputs));
    CHECK_EQ(outputs[0].toInt(), rows * columns);
    CHECK_EQ(outputs[1].toTensor().numel(), rows * columns);
    CHECK_EQ(outputs[2].toInt(), rows + 1);
  }
}

}  // namespace thunder::compile
