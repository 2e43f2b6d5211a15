// Depthwise convolutions as CUDA kernels, which run on the processor, compared with PyTorch's.
#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/executor_list.h"
#include "executors/cuda_kernels/depthwise_source.h"
#include "ir/printer.h"
#include "kernels_on_host.h"
#include "recorded_program.h"

namespace thunder::compile {
namespace {

using check::recorded;
using check::Tensors;
using Numbers = std::vector<std::int64_t>;

struct Convolution {
  Numbers padding{3, 3};
  Numbers stride{1, 1};
  Numbers dilation{1, 1};

  [[nodiscard]] at::Tensor of(const at::Tensor& x, const at::Tensor& w) const {
    return at::convolution(x, w, {}, stride, padding, dilation, false, {0, 0}, x.size(1));
  }
};

at::Tensor images(const Numbers& sizes, at::ScalarType dtype = at::kBFloat16) {
  return at::randn(sizes).to(dtype).contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor filters(std::int64_t channels, std::int64_t height, std::int64_t width,
                   at::ScalarType dtype = at::kBFloat16) {
  return at::randn({channels, 1, height, width}).to(dtype);
}

/// Results are those of double, rounded, and lie as PyTorch's do.
void check_convolution(const at::Tensor& x, const at::Tensor& w, const Convolution& convolution = {},
                       int launches = 1) {
  register_executor(check::kKernelsOnHost);
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  options.verify = true;
  const auto program = [&](const Tensors& t) { return Tensors{convolution.of(t[0], t[1])}; };
  const auto compiled = compile(recorded(program, {x, w}), options);
  const int before = check::launches_on_host();
  const at::Tensor given = compiled->run({x, w}).at(0);
  if (check::launches_on_host() - before != launches)
    check::report_failure(__FILE__, __LINE__, ir::print(compiled->forward_traces().back()));
  const at::Tensor exact = convolution.of(x.to(at::kDouble), w.to(at::kDouble));
  const double tolerance = x.scalar_type() == at::kHalf ? 2e-3 : 1e-2;
  CHECK(at::allclose(given.to(at::kDouble), exact, tolerance, tolerance, /*equal_nan=*/true));
  CHECK(given.strides() == convolution.of(x, w).strides());
}

}  // namespace

TEST(depthwise_convolutions_of_images_as_large_as_networks_have) {
  for (const std::int64_t size : {7, 14}) check_convolution(images({2, 96, size, size}), filters(96, 7, 7));
  check_convolution(images({1, 128, 9, 28}), filters(128, 7, 7));
}

TEST(depthwise_convolutions_of_float16) {
  check_convolution(images({2, 64, 10, 11}, at::kHalf), filters(64, 7, 7, at::kHalf));
}

TEST(depthwise_convolutions_with_filters_of_every_size) {
  for (const std::int64_t size : {1, 3, 5}) {
    check_convolution(images({2, 32, 8, 9}), filters(32, size, size), {.padding = {size / 2, size / 2}});
  }
  check_convolution(images({1, 32, 8, 9}), filters(32, 3, 6), {.padding = {0, 4}});
  check_convolution(images({1, 32, 8, 9}), filters(32, 2, 1), {.padding = {1, 0}});
}

TEST(depthwise_convolutions_of_images_smaller_than_a_filter) {
  check_convolution(images({3, 32, 2, 3}), filters(32, 7, 7));
  check_convolution(images({3, 32, 1, 1}), filters(32, 7, 7));
  check_convolution(images({1, 32, 5, 1}), filters(32, 7, 3), {.padding = {6, 2}});
}

TEST(depthwise_convolutions_of_more_lines_than_a_thread_block_takes_at_once) {
  check_convolution(images({5, 32, 41, 8}), filters(32, 3, 3), {.padding = {1, 1}});
}

TEST(numbers_that_are_not_finite_spread_no_further_than_in_pytorch) {
  for (const float number : {NAN, INFINITY}) {
    at::Tensor x = images({1, 32, 9, 9});
    x[0].select(1, 4).select(1, 2).fill_(number);
    check_convolution(x, filters(32, 3, 3).abs().add(1), {.padding = {1, 1}});
  }
}

TEST(other_convolutions_are_run_by_pytorch) {
  check_convolution(images({1, 32, 9, 9}), filters(32, 3, 3), {.padding = {1, 1}, .stride = {2, 2}}, 0);
  check_convolution(images({1, 32, 9, 9}), filters(32, 3, 3), {.padding = {1, 1}, .dilation = {2, 2}}, 0);
  check_convolution(images({1, 20, 9, 9}), filters(20, 3, 3), {.padding = {1, 1}}, 0);
  check_convolution(images({1, 32, 15, 15}), filters(32, 9, 9), {.padding = {4, 4}}, 0);
  check_convolution(images({1, 32, 9, 9}, at::kFloat), filters(32, 3, 3, at::kFloat), {.padding = {1, 1}}, 0);
  check_convolution(at::randn({1, 32, 9, 9}).to(at::kBFloat16), filters(32, 3, 3), {.padding = {1, 1}}, 0);
  check_convolution(images({0, 32, 9, 9}), filters(32, 3, 3), {.padding = {1, 1}}, 0);
}

TEST(one_text_of_depthwise_convolutions_is_for_all_sizes_of_images) {
  executors::cuda::DepthwiseShape shape{
      .images = 8, .channels = 96, .size = {56, 56}, .out_size = {56, 56}, .kernel = {7, 7}, .padding = {3, 3}};
  const std::string text = executors::cuda::emit_depthwise(shape, {}).value().text;
  shape.images = 128;
  shape.size = shape.out_size = {28, 28};
  shape.channels = 192;
  CHECK(text == executors::cuda::emit_depthwise(shape, {}).value().text);
  CHECK(!executors::cuda::emit_depthwise(shape, {.alignment = 2}).has_value());
}

}  // namespace thunder::compile
