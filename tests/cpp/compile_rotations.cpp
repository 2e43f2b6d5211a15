// Rotations of two halves, as rotary embeddings have them, compared with PyTorch's results.
#include <ATen/ATen.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "compile/execution.h"
#include "compile/pass_runner.h"
#include "ir/verifier.h"
#include "passes/dead_code_elimination.h"
#include "passes/rotations.h"
#include "recorded_program.h"
#include "rewritten_program.h"

namespace thunder::compile {
namespace {

using check::count_of;
using check::Tensors;

ir::Trace check_rotations(const Tensors& inputs, const check::TensorFunction& function) {
  const ir::Trace trace = check::recorded(function, inputs);
  ir::Trace made = passes::kDeadCodeElimination.run(passes::fuse_rotations(trace, ir::DeviceType::kCpu, &find_operator),
                                                    &find_operator);
  ir::verify(made, "test");
  const Tensors results = check::results_of(made, inputs);
  const Tensors expected = function(inputs);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(results[i].strides() == expected[i].strides());
    CHECK(at::allclose(results[i], expected[i]));
  }
  return made;
}

/// Heads in the order of memory of tokens, `[2, 6, 5, 8]`, with a sine and a cosine.
Tensors heads() { return {at::randn({2, 5, 6, 8}).transpose(1, 2), at::randn({1, 1, 5, 8}), at::randn({1, 1, 5, 8})}; }

at::Tensor half(const at::Tensor& x, bool second) { return x.slice(-1, second ? 4 : 0, second ? 8 : 4); }

at::Tensor rotated(const at::Tensor& x) { return at::cat({-half(x, true), half(x, false)}, -1); }

/// The derivative of `rotated`, as autograd makes it.
at::Tensor rotated_back(const at::Tensor& y) {
  const at::Tensor behind =
      at::slice_backward(-half(y, false), y.sizes(), -1, 4, std::numeric_limits<std::int64_t>::max(), 1);
  return behind + at::slice_backward(half(y, true), y.sizes(), -1, 0, 4, 1);
}

}  // namespace

TEST(a_rotation_is_a_sum_of_padded_halves) {
  const auto function = [](const Tensors& x) { return Tensors{x[0] * x[1] + rotated(x[0]) * x[2]}; };
  const ir::Trace made = check_rotations(heads(), function);
  CHECK_EQ(count_of(made, "aten::cat"), std::size_t{0});
  CHECK_EQ(count_of(made, "aten::constant_pad_nd"), std::size_t{2});
}

TEST(the_derivative_of_a_rotation_is_computed_of_rotated_operands) {
  const auto function = [](const Tensors& x) { return Tensors{x[0] * x[1] + rotated_back(x[0] * x[2])}; };
  const ir::Trace made = check_rotations(heads(), function);
  CHECK_EQ(count_of(made, "aten::slice_backward"), std::size_t{0});
  // That of the sine, whose halves change places.
  CHECK_EQ(count_of(made, "aten::cat"), std::size_t{1});
}

TEST(a_rotation_whose_strides_are_seen_stays) {
  const auto given = [](const Tensors& x) { return Tensors{rotated(x[0])}; };
  CHECK_EQ(count_of(check_rotations(heads(), given), "aten::cat"), std::size_t{1});
  const auto viewed = [](const Tensors& x) { return Tensors{rotated(x[0]).view({2, -1}) * 2}; };
  CHECK_EQ(count_of(check_rotations(heads(), viewed), "aten::cat"), std::size_t{1});
}

}  // namespace thunder::compile
