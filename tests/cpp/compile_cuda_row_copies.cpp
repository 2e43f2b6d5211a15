// Kernels that write rows of a cache where an index says, which run on the processor, compared with PyTorch.
#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "compile/executor_list.h"
#include "executors/api/lowering.h"
#include "executors/cuda/executor.h"
#include "fusion/buffer_assignment.h"
#include "fusion/region.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "kernels_on_host.h"
#include "passes/dead_code_elimination.h"
#include "random_tensors.h"
#include "recorded_program.h"
#include "tracer/operators.h"

namespace thunder::compile {
namespace {

using check::real;
using check::recorded;
using check::Tensors;

void set_device(ir::Trace& trace, ir::DeviceType device) {
  for (std::uint32_t i = 0; i < trace.value_count(); ++i) {
    const ir::TensorType* type = trace.tensor_type(ir::ValueId{i});
    if (type == nullptr) continue;
    ir::TensorType moved = *type;
    moved.device = device == ir::DeviceType::kCuda ? ir::Device{device, 0} : ir::Device{};
    trace.set_type(ir::ValueId{i}, ir::make_type(std::move(moved)));
  }
}

/// The trace as it would be for a GPU, where an index out of bounds raises nothing, with its fusions for the host.
ir::Trace fused(ir::Trace trace) {
  const executors::Executor& cuda = executors::cuda::executor();
  set_device(trace, ir::DeviceType::kCuda);
  ir::Trace made = cuda.fuse(cuda, trace).value_or(trace);
  const auto target = [](std::string_view) { return executors::cuda::executor().target; };
  made = fusion::assign_buffers(made, target, &tracer::find_operator);
  ir::verify(made, "test");
  set_device(made, ir::DeviceType::kCpu);
  for (ir::BoundSymbol& symbol : made.symbols) {
    if (fusion::is_fused_by(symbol, "cuda")) symbol.arguments[0] = ir::Argument("cuda_on_host");
  }
  return made;
}

std::size_t count(const ir::Trace& trace, std::string_view name) {
  return static_cast<std::size_t>(
      std::ranges::count_if(trace.symbols, [&](const ir::BoundSymbol& symbol) { return symbol.op->name == name; }));
}

Tensors copies(const Tensors& tensors) {
  Tensors made;
  for (const at::Tensor& tensor : tensors)
    made.push_back(at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).copy_(tensor));
  return made;
}

/// Compares results, and what is written to, with those of PyTorch. `writes`: whether a kernel writes the rows.
ir::Trace check_rows(const Tensors& inputs, const check::TensorFunction& program, bool writes = true) {
  register_executor(check::kKernelsOnHost);
  const ir::Trace trace = fused(recorded(program, inputs));
  if (count(trace, "aten::index_copy_") != (writes ? 0U : 1U))
    check::report_failure(__FILE__, __LINE__, ir::print(trace));
  const auto executors = with_fallback({find_executor("cuda_on_host")});
  const runtime::Program compiled = executors::lower_trace(trace, executors, /*waits=*/true);
  const Tensors expected_inputs = copies(inputs);
  const Tensors expected = program(expected_inputs);
  Tensors given = copies(inputs);
  const Tensors results = [&] {
    Tensors values(given);
    Tensors outputs(trace.outputs.size());
    compiled.run(std::span<at::Tensor>(values), std::span(outputs));
    return outputs;
  }();
  const auto is_close = [](const at::Tensor& a, const at::Tensor& b) {
    return at::allclose(a.to(at::kDouble), b.to(at::kDouble), 2e-2, 2e-2);
  };
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(is_close(results[i], expected[i]));
  for (std::size_t i = 0; i < given.size(); ++i) CHECK(is_close(given[i], expected_inputs[i]));
  return trace;
}

at::Tensor numbers(std::vector<std::int64_t> values) { return at::tensor(values); }

/// Keys of some tokens go to their places in a cache, with arithmetic in front.
Tensors write_keys(const Tensors& x) {
  x[0].index_copy_(2, x[1], at::exp(x[2]) * x[3]);
  return {x[0].amax({2})};
}

}  // namespace

TEST(elements_are_written_where_the_cache_has_them) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    check_rows({real({1, 8, 32, 16}, dtype), numbers({5}), real({1, 8, 1, 16}, dtype), real({16}, dtype)}, write_keys);
    check_rows({real({2, 3, 32, 16}, dtype), numbers({31, 0, 7}), real({2, 3, 3, 16}, dtype), real({16}, dtype)},
               write_keys);
  }
  check_rows({real({1, 2, 9, 5}), numbers({8}), real({1, 2, 1, 5}), real({5})}, write_keys);
}

TEST(a_matrix_times_one_row_is_written_through_views) {
  const auto project = [](const Tensors& x) {
    const at::Tensor value = at::linear(x[2], x[3]).view({1, 1, 4, 16}).transpose(1, 2);
    x[0].index_copy_(2, x[1], value);
    return Tensors{x[0].amax({2})};
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const ir::Trace trace = check_rows(
        {real({1, 4, 32, 16}, dtype), numbers({3}), real({1, 1, 2048}, dtype), real({64, 2048}, dtype) * 0.02},
        project);
    CHECK_EQ(count(trace, "aten::view"), 0U);
  }
}

TEST(rows_along_the_first_dimension_and_a_cache_in_another_order) {
  const auto write = [](const Tensors& x) {
    x[0].index_copy_(0, x[1], x[2] * 2 + 1);
    return Tensors{x[0].amax()};
  };
  check_rows({real({9, 8}), numbers({3, 4}), real({2, 8})}, write);
  check_rows({real({1, 4, 32, 16}).transpose(1, 2).contiguous().transpose(1, 2), numbers({5}), real({1, 4, 1, 16}),
              real({16})},
             write_keys);
}

TEST(an_index_of_32_bits) {
  // PyTorch's own takes 64 bits only: nothing is recorded for others.
  CHECK_THROWS(write_keys({real({1, 2, 9, 4}), numbers({8}).to(at::kInt), real({1, 2, 1, 4}), real({4})}), c10::Error);
}

TEST(a_cache_without_dimensions_has_no_rows) {
  const auto program = [](const Tensors& x) {
    x[0].index_copy_(0, x[1], at::exp(x[2]) * x[2]);
    return Tensors{};
  };
  check_rows({at::randn({}), at::zeros({}, at::kLong), at::randn({})}, program, false);
}

TEST(columns_that_are_chosen_are_left_to_pytorch) {
  const auto write = [](const Tensors& x) {
    x[0].index_copy_(1, x[1], x[2] * 2 + 1);
    return Tensors{x[0].amax()};
  };
  check_rows({real({8, 9}), numbers({3, 4}), real({8, 2})}, write, /*writes=*/false);
}

TEST(what_is_read_elsewhere_too_is_copied_by_pytorch) {
  const auto write = [](const Tensors& x) {
    const at::Tensor keys = at::exp(x[2]) * 2;
    x[0].index_copy_(2, x[1], keys);
    return Tensors{keys};
  };
  check_rows({real({1, 2, 9, 4}), numbers({8}), real({1, 2, 1, 4})}, write, /*writes=*/false);
}

TEST(a_cache_that_the_fusion_reads_is_written_after_it) {
  const auto write = [](const Tensors& x) {
    const at::Tensor keys = x[0].slice(2, 0, 1) * x[2] + 1;
    x[0].index_copy_(2, x[1], keys);
    return Tensors{x[0].amax()};
  };
  check_rows({real({1, 2, 9, 4}), numbers({8}), real({1, 2, 1, 4})}, write, /*writes=*/false);
}

TEST(an_index_out_of_bounds_writes_nothing) {
  for (const std::int64_t number : {-1, 9}) {
    Tensors inputs{real({1, 2, 9, 4}), numbers({1}), real({1, 2, 1, 4}), real({4})};
    const ir::Trace trace = fused(recorded(write_keys, inputs));
    register_executor(check::kKernelsOnHost);
    const runtime::Program compiled =
        executors::lower_trace(trace, with_fallback({find_executor("cuda_on_host")}), /*waits=*/true);
    inputs[1] = numbers({number});
    const at::Tensor before = inputs[0].clone();
    Tensors values(inputs);
    Tensors outputs(1);
    // The kernel stops, so PyTorch runs the operations, and says what is wrong.
    CHECK_THROWS(compiled.run(std::span<at::Tensor>(values), std::span(outputs)), c10::Error);
    CHECK(inputs[0].equal(before));
  }
}

}  // namespace thunder::compile
