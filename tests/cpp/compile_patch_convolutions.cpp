// Convolutions of patches as linear layers, compared with PyTorch's results.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/execution.h"
#include "compile/executor_list.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "kernels_on_host.h"
#include "recorded_program.h"
#include "rewritten_program.h"
#include "transforms/patch_convolutions.h"

namespace thunder::compile {
namespace {

using check::count_of;
using check::Tensors;

/// Four images of 3 × 16 × 24, filters of 8 × 8, and a bias.
Tensors images(at::ScalarType dtype = at::kBFloat16) {
  return {at::randn({4, 3, 16, 24}).to(dtype), (at::randn({16, 3, 8, 8}) / 14).to(dtype), at::randn({16}).to(dtype)};
}

at::Tensor patches(const Tensors& x) { return at::conv2d(x[0], x[1], x[2], {8, 8}); }

/// The computation without the checks of shapes that it has where no rule tells these.
ir::Trace recorded(const check::TensorFunction& function, const Tensors& inputs) {
  ir::Trace trace = check::recorded(function, inputs);
  std::erase_if(trace.symbols, [](const ir::BoundSymbol& symbol) { return symbol.op->name == "prims::check_shape"; });
  return trace;
}

std::size_t convolutions_of(const ir::Trace& trace) {
  return count_of(trace, "aten::conv2d") + count_of(trace, "aten::convolution");
}

/// How many convolutions are left; compares results and their strides.
std::size_t convolutions_left(const Tensors& inputs, const check::TensorFunction& function) {
  const ir::Trace trace = recorded(function, inputs);
  const auto made = transforms::patch_convolutions(trace, ir::DeviceType::kCpu);
  if (!made) return convolutions_of(trace);
  ir::verify(*made, "test");
  const Tensors results = check::results_of(*made, inputs);
  const Tensors expected = function(inputs);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(results[i].sizes() == expected[i].sizes());
    CHECK(results[i].strides() == expected[i].strides());
    CHECK(at::allclose(results[i].to(at::kDouble), expected[i].to(at::kDouble), 2e-2, 2e-2));
  }
  return convolutions_of(*made);
}

}  // namespace

TEST(filters_as_large_as_their_steps_are_a_linear_layer) {
  const auto tokens = [](const Tensors& x) { return Tensors{patches(x).flatten(2).transpose(1, 2) * 2}; };
  CHECK_EQ(convolutions_left(images(), tokens), std::size_t{0});
  CHECK_EQ(convolutions_left(images(at::kHalf), tokens), std::size_t{0});
  const auto without_bias = [](const Tensors& x) { return Tensors{at::conv2d(x[0], x[1], {}, {8, 8})}; };
  CHECK_EQ(convolutions_left(images(), without_bias), std::size_t{0});
  Tensors trained = images();
  for (at::Tensor& input : trained) input.requires_grad_();
  CHECK_EQ(convolutions_left(trained, tokens), std::size_t{0});
  Tensors strided = images();
  strided[0] = strided[0].contiguous(at::MemoryFormat::ChannelsLast);
  strided[1] = strided[1].contiguous(at::MemoryFormat::ChannelsLast);
  CHECK_EQ(convolutions_left(strided, without_bias), std::size_t{0});
}

TEST(what_reads_a_result_by_its_memory_gets_it_as_recorded) {
  const auto viewed = [](const Tensors& x) { return Tensors{patches(x).view({4, -1}).sin()}; };
  CHECK_EQ(convolutions_left(images(), viewed), std::size_t{0});
  const auto strided = [](const Tensors& x) { return Tensors{patches(x).as_strided({4, 7}, {96, 1}).sin()}; };
  CHECK_EQ(convolutions_left(images(), strided), std::size_t{0});
  const auto written = [](const Tensors& x) {
    at::Tensor y = patches(x);
    y.view({4, -1}).select(1, 3).zero_();
    return Tensors{y.sin(), at::empty_like(y).fill_(2)};
  };
  CHECK_EQ(convolutions_left(images(), written), std::size_t{0});
}

TEST(other_convolutions_stay) {
  const auto with = [](std::int64_t step, std::int64_t padding, std::int64_t dilation) {
    return [=](const Tensors& x) {
      return Tensors{at::conv2d(x[0], x[1], x[2], {step, step}, {padding, padding}, {dilation, dilation})};
    };
  };
  CHECK_EQ(convolutions_left(images(), with(8, 0, 1)), std::size_t{0});
  CHECK_EQ(convolutions_left(images(), with(4, 0, 1)), std::size_t{1});
  CHECK_EQ(convolutions_left(images(), with(8, 4, 1)), std::size_t{1});
  CHECK_EQ(convolutions_left(images(), with(8, 0, 2)), std::size_t{1});
  CHECK_EQ(convolutions_left(images(at::kFloat), with(8, 0, 1)), std::size_t{1});
  Tensors others = images();
  others[0] = others[0].slice(2, 0, 15);  // pixels that are in no patch
  CHECK_EQ(convolutions_left(others, with(8, 0, 1)), std::size_t{1});
  others = images();
  others[0] = others[0].slice(0, 0, 0);
  CHECK_EQ(convolutions_left(others, with(8, 0, 1)), std::size_t{1});
  others = images();
  others[1] = others[1].slice(0, 0, 15);  // rows that are no vectors
  others[2] = others[2].slice(0, 0, 15);
  CHECK_EQ(convolutions_left(others, with(8, 0, 1)), std::size_t{1});
  const Tensors many{at::randn({2, 8, 16, 16}).to(at::kHalf), at::randn({16, 8, 8, 8}).to(at::kHalf),
                     at::randn({16}).to(at::kHalf)};
  CHECK_EQ(convolutions_left(many, with(8, 0, 1)), std::size_t{1});
  const Tensors in_groups{at::randn({2, 4, 16, 16}).to(at::kHalf), at::randn({16, 2, 8, 8}).to(at::kHalf)};
  const auto grouped = [](const Tensors& x) {
    return Tensors{at::conv2d(x[0], x[1], {}, {8, 8}, at::IntArrayRef{0, 0}, {1, 1}, 2)};
  };
  CHECK_EQ(convolutions_left(in_groups, grouped), std::size_t{1});
  const auto transposed = [](const Tensors& x) {
    return Tensors{at::convolution(x[0], x[1], {}, {8, 8}, {0, 0}, {1, 1}, /*transposed=*/true, {0, 0}, 1)};
  };
  const Tensors back{at::randn({2, 16, 8, 8}).to(at::kHalf), at::randn({16, 16, 8, 8}).to(at::kHalf)};
  CHECK_EQ(convolutions_left(back, transposed), std::size_t{1});
}

TEST(a_step_of_patches_has_kernels_for_the_copies_and_matmuls) {
  register_executor(check::kKernelsOnHost);
  Tensors inputs = images(at::kFloat);
  for (at::Tensor& input : inputs) input.requires_grad_();
  const auto function = [](const Tensors& x) {
    const Tensors narrow{x[0].to(at::kBFloat16), x[1].to(at::kBFloat16), x[2].to(at::kBFloat16)};
    return Tensors{patches(narrow).flatten(2).transpose(1, 2).to(at::kFloat).sin()};
  };
  const ir::Trace trace = recorded(function, inputs);
  const auto made = transforms::patch_convolutions(trace, ir::DeviceType::kCpu);
  if (!made) return check::report_failure(__FILE__, __LINE__, ir::print(trace));
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  options.verify = true;
  const auto compiled = compile(*made, options);
  const int before = check::launches_on_host();
  const Tensors results = compiled->run(inputs);
  const Tensors expected = function(inputs);
  const at::Tensor cotangent = at::randn_like(expected[0]);
  const Tensors got = torch::autograd::grad({results[0]}, inputs, {cotangent});
  const Tensors wanted = torch::autograd::grad({expected[0]}, inputs, {cotangent});
  CHECK(check::launches_on_host() >= before + 3);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK(got[i].strides() == wanted[i].strides() && got[i].scalar_type() == wanted[i].scalar_type());
    CHECK((got[i] - wanted[i]).norm().item<double>() <= 2e-2 * wanted[i].norm().item<double>());
  }
  CHECK_EQ(count_of(compiled->backward_traces().back(), "aten::convolution_backward"), std::size_t{0});
}

}  // namespace thunder::compile
