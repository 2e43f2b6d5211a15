// Biases of convolutions as sums of their own, compared with PyTorch's results.
#include <ATen/ATen.h>

#include <cstddef>
#include <string>
#include <vector>

#include "check.h"
#include "compile/execution.h"
#include "compile/pass_runner.h"
#include "ir/verifier.h"
#include "passes/convolution_biases.h"
#include "recorded_program.h"
#include "rewritten_program.h"

namespace thunder::compile {
namespace {

using check::count_of;
using check::Tensors;

ir::Trace check_split(const Tensors& inputs, const check::TensorFunction& function) {
  const ir::Trace trace = check::recorded(function, inputs);
  ir::Trace made = passes::split_convolution_biases(trace, ir::DeviceType::kCpu, &find_operator);
  ir::verify(made, "test");
  const Tensors results = check::results_of(made, inputs);
  const Tensors expected = function(inputs);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(results[i].strides() == expected[i].strides());
    CHECK(at::allclose(results[i], expected[i], 1e-4, 1e-4));
  }
  return made;
}

at::Tensor convolved(const Tensors& x, const at::Tensor& bias) {
  return at::convolution(x[0], x[1], bias, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
}

Tensors images() { return {at::randn({2, 4, 8, 8}), at::randn({6, 4, 3, 3}), at::randn({6})}; }

}  // namespace

TEST(a_bias_is_added_to_the_result) {
  const auto function = [](const Tensors& x) { return Tensors{convolved(x, x[2])}; };
  CHECK_EQ(count_of(check_split(images(), function), "aten::add"), std::size_t{1});
  const auto plain = [](const Tensors& x) { return Tensors{convolved(x, {})}; };
  CHECK_EQ(count_of(check_split(images(), plain), "aten::add"), std::size_t{0});
}

}  // namespace thunder::compile
