// Max pooling and its derivative as CUDA kernels, which run on the processor, compared with PyTorch's.
#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/executor_list.h"
#include "executors/cuda_kernels/pooling_source.h"
#include "ir/printer.h"
#include "kernels_on_host.h"
#include "recorded_program.h"

namespace thunder::compile {
namespace {

using check::recorded;
using check::TensorFunction;
using check::Tensors;

struct Window {
  std::vector<std::int64_t> kernel{3};
  std::vector<std::int64_t> stride{2};
  std::vector<std::int64_t> padding{1};
  std::int64_t dilation = 1;
  bool is_rounded_up = false;
};

at::Tensor images(std::vector<std::int64_t> sizes, at::ScalarType dtype = at::kFloat) {
  return at::randn(sizes).to(dtype).contiguous(at::MemoryFormat::ChannelsLast);
}

Tensors pooled(const at::Tensor& x, const Window& of) {
  auto [maxima, places] =
      at::max_pool2d_with_indices(x, of.kernel, of.stride, of.padding, of.dilation, of.is_rounded_up);
  return {maxima, places};
}

/// The results of a program, and that it launches so many kernels.
Tensors run_on_host(const TensorFunction& program, const Tensors& inputs, int launches) {
  register_executor(check::kKernelsOnHost);
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  options.verify = true;
  const auto compiled = compile(recorded(program, inputs), options);
  const int before = check::launches_on_host();
  Tensors results = compiled->run(inputs);
  if (check::launches_on_host() - before != launches)
    check::report_failure(__FILE__, __LINE__, ir::print(compiled->forward_traces().back()));
  return results;
}

/// The maxima, and their places by PyTorch's kernel for CUDA and images that lie channels last: that of -infinity is 0.
Tensors expected_of(const at::Tensor& x, const Window& of) {
  Tensors made = pooled(x, of);
  made[1].masked_fill_(made[0].isneginf(), 0);
  return made;
}

/// Elements, places, strides and gradients are PyTorch's, to the last bit where nothing is added.
void check_pooling(const at::Tensor& x, const Window& of, int launches = 1) {
  const Tensors expected = launches == 0 ? pooled(x, of) : expected_of(x, of);
  const Tensors given = run_on_host([&](const Tensors& t) { return pooled(t[0], of); }, {x}, launches);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(at::allclose(given.at(i), expected[i], 0, 0, /*equal_nan=*/true));
    CHECK(given[i].strides() == expected[i].strides());
  }
  const auto maxima = [&](const Tensors& t) {
    return Tensors{at::max_pool2d(t[0], of.kernel, of.stride, of.padding, of.dilation, of.is_rounded_up)};
  };
  const at::Tensor alone = run_on_host(maxima, {x}, launches).at(0);
  CHECK(at::allclose(alone, expected[0], 0, 0, /*equal_nan=*/true));
  const auto gradient = [&](const Tensors& t) {
    return Tensors{at::max_pool2d_with_indices_backward(t[0], t[1], of.kernel, of.stride, of.padding, of.dilation,
                                                        of.is_rounded_up, t[2])};
  };
  const at::Tensor cotangent = at::randn_like(expected[0]);
  const Tensors inputs{cotangent, x, pooled(x, of)[1]};
  const at::Tensor made = run_on_host(gradient, inputs, launches).at(0);
  const at::Tensor wide = gradient({cotangent.to(at::kDouble), x.to(at::kDouble), inputs[2]}).at(0);
  const double tolerance = x.scalar_type() == at::kFloat ? 1e-6 : x.scalar_type() == at::kHalf ? 1e-3 : 8e-3;
  CHECK(at::allclose(made.to(at::kDouble), wide, tolerance, tolerance));
  CHECK(made.strides() == gradient(inputs).at(0).strides());
}

}  // namespace

TEST(max_pooling_of_every_dtype) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    check_pooling(images({2, 16, 9, 12}, dtype), {});
    check_pooling(images({1, 8, 7, 5}, dtype), {{2}, {2}, {0}});
  }
}

TEST(max_pooling_of_every_window) {
  const at::Tensor x = images({2, 4, 11, 10});
  for (const bool is_rounded_up : {false, true}) {
    check_pooling(x, {{3, 3}, {2, 2}, {1, 1}, 1, is_rounded_up});
    check_pooling(x, {{2, 3}, {1, 2}, {0, 1}, 1, is_rounded_up});
    check_pooling(x, {{4, 2}, {2, 3}, {2, 1}, 1, is_rounded_up});
    check_pooling(x, {{1}, {1}, {0}, 1, is_rounded_up});
    check_pooling(x, {{2}, {3}, {1}, 1, is_rounded_up});  // elements between windows
    check_pooling(x, {{3}, {}, {1}, 1, is_rounded_up});
  }
}

TEST(max_pooling_of_images_as_small_as_a_window) {
  check_pooling(images({3, 4, 2, 2}), {});
  check_pooling(images({1, 8, 3, 1}), {});
  check_pooling(images({2, 4, 1, 1}), {{2}, {2}, {1}});
}

TEST(the_first_of_equal_elements_wins) {
  check_pooling(at::zeros({1, 4, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast), {});
  check_pooling(at::relu(images({2, 8, 9, 9}, at::kBFloat16)), {});
  at::Tensor signed_zeros = images({1, 4, 6, 6}).sign().mul(0.0);
  check_pooling(signed_zeros, {});
}

TEST(numbers_that_are_not_finite_win_as_in_pytorch) {
  for (const float number : {NAN, INFINITY, -INFINITY}) {
    at::Tensor x = images({1, 8, 9, 9});
    x.masked_fill_(at::rand_like(x) < 0.3, number);
    check_pooling(x, {});
    check_pooling(at::full_like(x, number), {});
  }
}

TEST(the_place_of_a_maximum_of_minus_infinity_is_0) {
  at::Tensor x = images({1, 8, 8, 8});
  x.slice(2, 4).fill_(-INFINITY);
  const at::Tensor places = run_on_host([](const Tensors& t) { return pooled(t[0], {{2}, {2}, {0}}); }, {x}, 1).at(1);
  CHECK(places.slice(2, 2).eq(0).all().item<bool>());
}

TEST(an_odd_number_of_channels_is_run_by_pytorch) { check_pooling(images({2, 6, 9, 9}), {}, 0); }

TEST(dilated_windows_and_many_overlapping_ones_are_run_by_pytorch) {
  const at::Tensor x = images({1, 8, 12, 12});
  check_pooling(x, {{3}, {2}, {1}, 2}, 0);
  check_pooling(x, {{3}, {1}, {1}}, 0);
  check_pooling(x, {{5}, {4}, {2}}, 0);
}

TEST(images_in_other_orders_are_run_by_pytorch) {
  check_pooling(at::randn({2, 8, 9, 9}), {}, 0);
  check_pooling(at::randn({2, 8, 9, 9}).to(at::kDouble).contiguous(at::MemoryFormat::ChannelsLast), {}, 0);
}

TEST(pooling_of_no_images_is_run_by_pytorch) { check_pooling(images({0, 8, 9, 9}), {}, 0); }

TEST(inputs_that_lie_otherwise_than_was_traced_are_run_by_pytorch) {
  register_executor(check::kKernelsOnHost);
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  const at::Tensor x = images({1, 8, 9, 9});
  const auto program = [](const Tensors& t) { return pooled(t[0], {}); };
  const auto compiled = compile(recorded(program, {x}), options);
  const at::Tensor other = at::randn({1, 16, 9, 9}).contiguous(at::MemoryFormat::ChannelsLast).slice(1, 3, 11);
  const int before = check::launches_on_host();
  const Tensors given = compiled->run({other});
  CHECK_EQ(check::launches_on_host() - before, 0);
  CHECK(given.at(0).equal(pooled(other, {})[0]));
  CHECK(given.at(1).equal(pooled(other, {})[1]));
}

TEST(one_text_is_for_all_sizes_of_images) {
  using executors::cuda::emit_max_pooling;
  using executors::cuda::emit_max_pooling_gradient;
  executors::cuda::PoolingShape shape{.images = 8,
                                      .channels = 64,
                                      .size = {112, 112},
                                      .out_size = {56, 56},
                                      .kernel = {3, 3},
                                      .stride = {2, 2},
                                      .padding = {1, 1}};
  const std::string forward = emit_max_pooling(shape, true, {}).value().text;
  const std::string backward = emit_max_pooling_gradient(shape, {}).value().text;
  shape.images = 3;
  shape.channels = 128;
  shape.size = {31, 20};
  shape.out_size = {16, 10};
  CHECK(forward == emit_max_pooling(shape, true, {}).value().text);
  CHECK(backward == emit_max_pooling_gradient(shape, {}).value().text);
  CHECK(forward != emit_max_pooling(shape, false, {}).value().text);
  CHECK(!emit_max_pooling(shape, true, {.alignment = 8}).has_value());
}

}  // namespace thunder::compile
