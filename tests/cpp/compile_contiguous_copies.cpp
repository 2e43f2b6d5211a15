// Copies into contiguous memory that are left out, compared with PyTorch's results.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <string>
#include <vector>

#include "check.h"
#include "compile/execution.h"
#include "compile/pass_runner.h"
#include "ir/verifier.h"
#include "passes/contiguous_copies.h"
#include "passes/dead_code_elimination.h"
#include "recorded_program.h"
#include "rewritten_program.h"

namespace thunder::compile {
namespace {

using check::count_of;
using check::Tensors;

/// Rewrites a function, runs it, and compares; returns the new trace without what is dead.
ir::Trace check_copies(const Tensors& inputs, const check::TensorFunction& function, std::size_t caller_outputs) {
  const ir::Trace trace = check::recorded(function, inputs);
  ir::Trace made = passes::avoid_contiguous_copies(trace, ir::DeviceType::kCpu, caller_outputs, &find_operator);
  made = passes::kDeadCodeElimination.run(made, &find_operator);
  ir::verify(made, "test");
  const Tensors results = check::results_of(made, inputs);
  const Tensors expected = function(inputs);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(results[i].strides() == expected[i].strides());
    CHECK(at::equal(results[i], expected[i]));
  }
  return made;
}

at::Tensor restride(const at::Tensor& x, at::IntArrayRef strides) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("thunder::restride", "")
                             .typed<at::Tensor(const at::Tensor&, at::IntArrayRef)>();
  return op.call(x, strides);
}

/// Heads that were attended to, `[2, 4, 6, 4]`, in the order of memory of `[2, 6, 4, 4]`, with other strides recorded.
at::Tensor joined_heads(const at::Tensor& x, at::Tensor* attended = nullptr) {
  const at::Tensor heads = at::exp(x).transpose(1, 2);
  if (attended != nullptr) *attended = heads;
  return restride(heads, {96, 24, 4, 1}).transpose(1, 2).clone(at::MemoryFormat::Contiguous);
}

/// The gradients of queries, keys and values that a matmul gave together.
at::Tensor together(const Tensors& x) {
  return at::stack({x[0], x[1], x[2]}).permute({1, 3, 0, 2, 4}).clone(at::MemoryFormat::Contiguous).reshape({14, 24});
}

}  // namespace

TEST(a_copy_of_what_is_contiguous_with_its_own_strides_is_a_view) {
  const auto function = [](const Tensors& x) { return Tensors{joined_heads(x[0]).reshape({12, 16}) * 2}; };
  const ir::Trace made = check_copies({at::randn({2, 6, 4, 4})}, function, 1);
  CHECK_EQ(count_of(made, "aten::clone"), std::size_t{0});
  CHECK_EQ(count_of(made, "thunder::restride"), std::size_t{0});
}

TEST(what_the_caller_gets_is_a_copy) {
  const auto function = [](const Tensors& x) {
    at::Tensor attended;
    const at::Tensor copy = joined_heads(x[0], &attended);
    return Tensors{copy, attended * 1};
  };
  const Tensors inputs{at::randn({2, 6, 4, 4})};
  CHECK_EQ(count_of(check_copies(inputs, function, 2), "aten::clone"), std::size_t{1});
  CHECK_EQ(count_of(check_copies(inputs, function, 0), "aten::clone"), std::size_t{0});
}

TEST(permuted_parts_are_put_together_once) {
  const Tensors parts{at::randn({2, 4, 7, 2}), at::randn({2, 4, 7, 2}), at::randn({2, 4, 7, 2})};
  const ir::Trace made = check_copies(parts, [](const Tensors& x) { return Tensors{together(x)}; }, 1);
  CHECK_EQ(count_of(made, "aten::clone"), std::size_t{0});
  CHECK_EQ(count_of(made, "aten::stack"), std::size_t{1});
  const auto joined = [](const Tensors& x) {
    return Tensors{at::cat({x[0], x[1]}, -3).transpose(1, 2).clone(at::MemoryFormat::Contiguous)};
  };
  CHECK_EQ(count_of(check_copies(parts, joined, 1), "aten::clone"), std::size_t{0});
}

TEST(parts_that_somebody_else_reads_stay) {
  const Tensors parts{at::randn({2, 3, 4}), at::randn({2, 3, 4})};
  const auto function = [](const Tensors& x) {
    const at::Tensor all = at::stack({x[0], x[1]});
    return Tensors{all.permute({1, 2, 0, 3}).clone(at::MemoryFormat::Contiguous), all + 1};
  };
  CHECK_EQ(count_of(check_copies(parts, function, 2), "aten::clone"), std::size_t{1});
}

}  // namespace thunder::compile
