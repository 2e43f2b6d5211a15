// Gradients of depthwise convolutions as convolutions, compared with PyTorch's.
#include <ATen/ATen.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "check.h"
#include "compile/execution.h"
#include "compile/pass_runner.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "passes/depthwise_gradients.h"
#include "recorded_program.h"
#include "rewritten_program.h"

namespace thunder::compile {
namespace {

using check::count_of;
using check::Tensors;
using Numbers = std::vector<std::int64_t>;

/// A convolution by its numbers, and which of its gradients are wanted.
struct Convolution {
  Numbers stride{1, 1}, padding{1, 1}, dilation{1, 1};
  std::int64_t groups = 4;
  std::array<bool, 3> mask{true, true, true};
  bool transposed = false;

  /// `x` is the gradient of the result, the images and the filters.
  [[nodiscard]] Tensors gradients(const Tensors& x) const {
    const Numbers biases{x[0].size(1)};
    auto made = at::convolution_backward(x[0], x[1], x[2], at::OptionalIntArrayRef(biases), stride, padding, dilation,
                                         transposed, Numbers(stride.size(), 0), groups, mask);
    Tensors wanted;
    for (const at::Tensor& each : {std::get<0>(made), std::get<1>(made), std::get<2>(made)}) {
      if (each.defined()) wanted.push_back(each);
    }
    return wanted;
  }
  /// Returns random inputs of `gradients`, for images and filters of these sizes.
  [[nodiscard]] Tensors inputs(const Numbers& images, const Numbers& filters, at::ScalarType dtype = at::kDouble,
                               bool channels_last = true) const {
    const auto laid_out = [&](const at::Tensor& tensor) {
      return channels_last && tensor.dim() == 4 ? tensor.contiguous(at::MemoryFormat::ChannelsLast) : tensor;
    };
    const at::Tensor x = laid_out(at::randn(images, dtype));
    const at::Tensor w = at::randn(filters, dtype);
    const at::Tensor result =
        at::convolution(x, w, {}, stride, padding, dilation, transposed, Numbers(stride.size(), 0), groups);
    return {laid_out(at::randn_like(result)), x, w};
  }
};

bool any_images(const ir::TensorType& /*images*/) { return true; }
bool no_images(const ir::TensorType& /*images*/) { return false; }

ir::Trace rewritten(const Convolution& of, const Tensors& inputs, passes::PrefersConvolution prefers = &any_images) {
  const auto function = [&](const Tensors& x) { return of.gradients(x); };
  ir::Trace made = passes::convolve_depthwise_gradients(check::recorded(function, inputs), prefers, &find_operator);
  ir::verify(made, "test");
  return made;
}

bool is_rewritten(const ir::Trace& trace) { return count_of(trace, "aten::flip") == 1; }

/// Rewrites the gradients, runs both and compares.
void check_same(const Convolution& of, const Tensors& inputs, double tolerance = 1e-12) {
  const ir::Trace made = rewritten(of, inputs);
  CHECK(is_rewritten(made));
  const Tensors results = check::results_of(made, inputs);
  const Tensors expected = of.gradients(inputs);
  CHECK_EQ(results.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(results[i].strides() == expected[i].strides());
    CHECK(results[i].dtype() == expected[i].dtype());
    CHECK(at::allclose(results[i], expected[i], tolerance, tolerance, /*equal_nan=*/true));
  }
}

}  // namespace

TEST(the_gradient_of_images_is_a_convolution_with_the_mirrored_filter) {
  for (const std::int64_t padding : {0, 1, 2}) {
    const Convolution square{.padding = {padding, padding}};
    check_same(square, square.inputs({2, 4, 6, 5}, {4, 1, 3, 3}));
  }
  const Convolution wide{.padding = {3, 2}};
  check_same(wide, wide.inputs({1, 4, 9, 8}, {4, 1, 7, 5}));
  const Convolution even{.padding = {0, 1}};
  check_same(even, even.inputs({2, 4, 5, 7}, {4, 1, 2, 4}));
}

TEST(a_filter_of_one_pixel_and_images_of_one) {
  const Convolution plain{.padding = {0, 0}};
  check_same(plain, plain.inputs({2, 4, 1, 1}, {4, 1, 1, 1}));
  const Convolution larger{.padding = {2, 2}};
  check_same(larger, larger.inputs({1, 4, 1, 1}, {4, 1, 5, 5}));
}

TEST(dilated_filters_reach_further) {
  const Convolution dilated{.padding = {2, 3}, .dilation = {2, 3}};
  check_same(dilated, dilated.inputs({2, 4, 9, 9}, {4, 1, 3, 3}));
}

TEST(images_of_one_and_of_three_dimensions_and_other_layouts) {
  const Convolution line{.stride = {1}, .padding = {1}, .dilation = {1}};
  check_same(line, line.inputs({2, 4, 9}, {4, 1, 3}));
  const Convolution volume{.stride = {1, 1, 1}, .padding = {1, 0, 1}, .dilation = {1, 1, 1}};
  check_same(volume, volume.inputs({2, 4, 3, 5, 4}, {4, 1, 3, 2, 3}));
  const Convolution square;
  check_same(square, square.inputs({2, 4, 6, 5}, {4, 1, 3, 3}, at::kDouble, /*channels_last=*/false));
}

TEST(narrow_floats) {
  const Convolution of{.padding = {3, 3}, .groups = 16};
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    check_same(of, of.inputs({2, 16, 8, 8}, {16, 1, 7, 7}, dtype), 0.25);
  }
}

TEST(not_a_number_goes_where_it_went) {
  const Convolution of;
  Tensors inputs = of.inputs({1, 4, 6, 6}, {4, 1, 3, 3});
  inputs[0][0][1][2][3] = std::numeric_limits<double>::quiet_NaN();
  inputs[0][0][2][0][0] = std::numeric_limits<double>::infinity();
  check_same(of, inputs);
}

TEST(only_what_is_wanted_is_left) {
  Convolution of{.mask = {true, false, false}};
  const Tensors inputs = of.inputs({2, 4, 6, 5}, {4, 1, 3, 3});
  check_same(of, inputs);
  CHECK_EQ(count_of(rewritten(of, inputs), "aten::convolution_backward"), std::size_t{0});
  of.mask = {true, true, false};
  check_same(of, inputs);
  CHECK_EQ(count_of(rewritten(of, inputs), "aten::convolution_backward"), std::size_t{1});
  of.mask = {false, true, true};
  CHECK(!is_rewritten(rewritten(of, inputs)));
}

TEST(other_convolutions_keep_their_gradients) {
  const auto stays = [](const Convolution& of, const Numbers& images, const Numbers& filters) {
    return !is_rewritten(rewritten(of, of.inputs(images, filters)));
  };
  CHECK(stays({.stride = {2, 2}}, {2, 4, 6, 6}, {4, 1, 3, 3}));
  CHECK(stays({.stride = {1, 2}}, {2, 4, 6, 6}, {4, 1, 3, 3}));
  CHECK(stays({.padding = {3, 3}}, {2, 4, 6, 6}, {4, 1, 3, 3}));  // the gradient would have to be cut
  CHECK(stays({.groups = 2}, {2, 4, 6, 6}, {4, 2, 3, 3}));
  CHECK(stays({.groups = 4}, {2, 4, 6, 6}, {8, 1, 3, 3}));  // two filters for a channel
  CHECK(stays({.groups = 1}, {2, 1, 6, 6}, {1, 1, 3, 3}));
  CHECK(stays({.groups = 4, .transposed = true}, {2, 4, 6, 6}, {4, 1, 3, 3}));
}

TEST(the_target_decides_which_images) {
  const Convolution of;
  CHECK(!is_rewritten(rewritten(of, of.inputs({2, 4, 6, 5}, {4, 1, 3, 3}), &no_images)));
}

TEST(a_rewritten_gradient_as_printed) {
  const Convolution of{.mask = {true, true, false}};
  const ir::Trace made = rewritten(of, of.inputs({2, 4, 6, 5}, {4, 1, 3, 3}, at::kFloat));
  CHECK_EQ(ir::print(made, {.deletions = false}), R"(# computation: depthwise_gradients
import torch

@torch.no_grad()
def computation(x0, x1, x2):
  # x0: "cpu f32[2, 4, 6, 5]"
  # x1: "cpu f32[2, 4, 6, 5]"
  # x2: "cpu f32[4, 1, 3, 3]"
  t5 = torch.ops.aten.flip.default(x2, [2, 3])  # t5: "cpu f32[4, 1, 3, 3]"
  t3 = torch.ops.aten.convolution.default(x0, t5, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 4)  # t3: "cpu f32[2, 4, 6, 5]"
  (_, t4, _) = torch.ops.aten.convolution_backward.default(x0, x1, x2, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 4, [False, True, False])  # t4: "cpu f32[4, 1, 3, 3]"
  return (t3, t4)
)");
}

}  // namespace thunder::compile
