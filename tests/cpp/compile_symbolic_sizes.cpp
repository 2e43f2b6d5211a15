// Traces with symbols, made by hand: compiled once, and run at many sizes.
#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "bridge/convert.h"
#include "check.h"
#include "compile/compiler.h"
#include "executors/api/lowering.h"
#include "fusion/region.h"
#include "ir/builder.h"
#include "ir/trace_sizes.h"
#include "ir/verifier.h"
#include "tracer/fallback.h"
#include "tracer/operators.h"

namespace thunder::compile {
namespace {

using ir::Argument;
using ir::ArgumentList;
using ir::Dim;
using ir::Dims;
using ir::Trace;
using ir::ValueId;

constexpr std::int64_t kSizes[][2] = {{2, 2}, {3, 64}, {64, 3}, {7, 100}, {16, 129}, {33, 17}, {130, 257}};

/// A trace of two symbols, `s0` and `s1`.
class Program {
 public:
  const Dim rows = Dim::symbol(0, 24);
  const Dim columns = Dim::symbol(1, 96);

  ValueId input(Dims sizes, ir::Dtype dtype = ir::Dtype::kFloat32) {
    return trace.add_input(ir::tensor_type(dtype, std::move(sizes)));
  }
  ValueId call(const char* name, const char* overload, ArgumentList arguments, Dims sizes,
               ir::Dtype dtype = ir::Dtype::kFloat32) {
    return call(name, overload, std::move(arguments), ir::tensor_type(dtype, std::move(sizes)));
  }
  ValueId call(const char* name, const char* overload, ArgumentList arguments, const ir::TypePtr& type) {
    tracer::init_tracer();
    const ir::Operator* op = tracer::find_operator(name, overload);
    THUNDER_CHECK(op != nullptr, "test", name);
    return ir::add_call(trace, *op, std::move(arguments), type);
  }
  [[nodiscard]] ir::TensorType type_of(ValueId value) const { return *trace.tensor_type(value); }

  Trace trace{"computation", std::make_shared<ir::TraceContext>()};
};

at::Tensor sample(const ir::TensorType& type) {
  const std::vector<std::int64_t> sizes = bridge::hints(type.sizes);
  const at::Tensor tensor = type.dtype == ir::Dtype::kInt64 ? at::randint(0, 5, sizes, at::kLong) : at::randn(sizes);
  return at::empty_strided(sizes, bridge::hints(type.strides), tensor.options()).copy_(tensor);
}

void check_equal(const at::Tensor& got, const at::Tensor& expected, const std::string& sizes) {
  const bool is_alike = got.sizes() == expected.sizes() && got.strides() == expected.strides() &&
                        got.scalar_type() == expected.scalar_type();
  if (is_alike && at::allclose(got, expected, 1e-4, 1e-5)) return;
  check::report_failure(__FILE__, __LINE__,
                        "another result at sizes " + sizes + ": strides " + check::show(got.strides()) + " and " +
                            check::show(expected.strides()));
}

/// Compiles the program once for an executor, and compares it at each size with PyTorch's operations.
void check_with(const char* executor, const Trace& trace, bool fuses) {
  ir::verify(trace, "test");
  Options options;
  options.executors = with_fallback({find_executor(executor)});
  options.verify = true;
  const auto compiled = compile(trace, options);
  const auto is_fused = [](const ir::BoundSymbol& symbol) { return symbol.op == fusion::fused_operator(); };
  CHECK_EQ(std::ranges::any_of(compiled->forward_traces().back().symbols, is_fused), fuses);
  for (const auto& sizes : kSizes) {
    const Trace sized = ir::at_sizes(trace, sizes);
    std::vector<at::Tensor> inputs;
    for (const ValueId input : sized.inputs) inputs.push_back(sample(*sized.tensor_type(input)));
    std::vector<at::Tensor> given = inputs;
    std::vector<at::Tensor> expected(trace.outputs.size());
    executors::lower_operators(sized).run(std::span(given), std::span(expected));
    const std::vector<at::Tensor> results = compiled->run(inputs);
    const std::string text = std::to_string(sizes[0]) + " and " + std::to_string(sizes[1]);
    for (std::size_t i = 0; i < results.size(); ++i) check_equal(results[i], expected[i], text);
  }
}

void check(Program& program, std::vector<ValueId> outputs, bool fuses = true) {
  for (const ValueId output : outputs) program.trace.outputs.emplace_back(output);
  check_with("cpu", program.trace, fuses);
  if (fuses) check_with("reference", program.trace, fuses);
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

}  // namespace thunder::compile
