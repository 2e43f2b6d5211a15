// Fusions as CUDA kernels, which run on the processor, compared with PyTorch's operations.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/executor_list.h"
#include "ir/printer.h"
#include "kernels_on_host.h"
#include "random_tensors.h"
#include "recorded_program.h"

namespace thunder::compile {
namespace {

using check::real;
using check::recorded;
using check::Tensors;
using Program = check::TensorFunction;

double tolerance_of(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return 2e-2;
  return dtype == at::kHalf ? 3e-3 : 1e-4;
}

/// As near as the dtype of the result tells, or as `rounded_to` does, to which values on the way are rounded: the last
/// bit of an exponential, which differs between processors, decides there to which side.
void check_equal(const at::Tensor& got, const at::Tensor& expected, std::size_t i,
                 std::optional<at::ScalarType> rounded_to = std::nullopt) {
  const double of_result = tolerance_of(expected.scalar_type());
  const double tolerance = rounded_to ? std::max(of_result, tolerance_of(*rounded_to)) : of_result;
  const bool is_alike = got.sizes() == expected.sizes() && got.strides() == expected.strides() &&
                        got.scalar_type() == expected.scalar_type();
  const auto wide = [](const at::Tensor& tensor) { return tensor.to(at::kDouble); };
  if (is_alike && at::allclose(wide(got), wide(expected), tolerance, tolerance, /*equal_nan=*/true)) return;
  check::report_failure(__FILE__, __LINE__, "another result " + std::to_string(i));
}

/// Compiles the program for kernels on the host, and compares its results, and what it writes to, with those of
/// PyTorch. Returns the launches.
int check(const Tensors& inputs, const Program& program, std::optional<at::ScalarType> rounded_to = std::nullopt) {
  register_executor(check::kKernelsOnHost);
  const ir::Trace trace = recorded(program, inputs);
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  options.verify = true;
  const auto compiled = compile(trace, options);
  const auto copy = [](const at::Tensor& tensor) {
    if (!tensor.is_non_overlapping_and_dense()) return tensor;
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).copy_(tensor);
  };
  Tensors given;
  std::ranges::transform(inputs, std::back_inserter(given), copy);
  const int before = check::launches_on_host();
  const Tensors results = compiled->run(given);
  if (check::launches_on_host() == before)
    check::report_failure(__FILE__, __LINE__, ir::print(compiled->forward_traces().back()));
  const int launches = check::launches_on_host() - before;
  const Tensors expected = program(inputs);
  for (std::size_t i = 0; i < expected.size(); ++i) check_equal(results[i], expected[i], i, rounded_to);
  return launches;
}

at::Tensor index(std::vector<std::int64_t> sizes, std::int64_t end) { return at::randint(0, end, sizes, at::kLong); }

}  // namespace

TEST(elements_of_every_dtype) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    check({real({6, 40}, dtype), real({40}, dtype), real({6, 1}, dtype)}, [](const Tensors& x) {
      return Tensors{at::gelu(x[0] * x[1] + x[2]), at::silu(x[0]) - at::tanh(x[2]), at::exp(x[0] * 0.3).round()};
    });
  }
  check({index({5, 9}, 50), index({9}, 7).to(at::kInt), index({5, 9}, 2).to(at::kBool)}, [](const Tensors& x) {
    return Tensors{x[0] * x[1] - 3, at::where(x[2], x[0], -x[0]).to(at::kShort), (x[0] > x[1]).logical_not(),
                   x[0].to(at::kFloat) / 7, at::maximum(x[0], x[1]).to(at::kByte)};
  });
}

TEST(functions_of_elements) {
  check({real({3, 37})}, [](const Tensors& in) {
    const at::Tensor& x = in[0];
    const at::Tensor positive = x.abs() + 0.1;
    return Tensors{x.sin() + x.cos(),      x.erf() * x.sigmoid(),   positive.log() + positive.log1p(),
                   positive.sqrt(),        positive.rsqrt(),        positive.reciprocal(),
                   x.expm1() + x.square(), x.floor() + x.ceil(),    x.trunc() + x.sign(),
                   at::pow(positive, 1.7), at::gelu(x, "tanh"),     at::relu(x) + at::clamp(x, -0.5, 0.5),
                   at::minimum(x, -x),     at::gelu_backward(x, x), at::silu_backward(x, x)};
  });
}

TEST(gelu_of_16_bits_is_as_near_as_its_rounding) {
  const at::Tensor line = at::linspace(-9, 9, 1 << 13).to(at::kBFloat16);
  const at::Tensor special = at::tensor({NAN, INFINITY, 0.0F, -0.0F, 50.0F, -50.0F, 1e30F, 1e-30F}).to(at::kBFloat16);
  const Program program = [](const Tensors& in) {
    return Tensors{at::gelu(in[0]), at::gelu_backward(at::ones_like(in[0]), in[0])};
  };
  check({line}, program);
  register_executor(check::kKernelsOnHost);
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  for (const at::Tensor& given : {line, special}) {
    const Tensors results = compile(recorded(program, {given}), options)->run({given});
    const at::Tensor x = given.to(at::kDouble);
    const at::Tensor cdf = at::special_erfc(-x / std::sqrt(2.0)) / 2;
    const Tensors exact{x * cdf, cdf + x * at::exp(x.square() / -2) / std::sqrt(2 * M_PI)};
    for (std::size_t i = 0; i < exact.size(); ++i) {
      CHECK(at::allclose(results[i].to(at::kDouble), exact[i], /*rtol=*/1.0 / 256, /*atol=*/1e-30, /*equal_nan=*/true));
    }
  }
}

TEST(the_gradient_of_a_norm_reads_what_it_has_in_16_bits_again) {
  const auto images = [] { return real({8, 32, 6, 6}, at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast); };
  const auto launches = check({images(), images(), images(), images(), real({1, 32, 1, 1})}, [](const Tensors& x) {
    const std::vector<std::int64_t> reduced{0, 2, 3};
    const at::Tensor masked = at::threshold_backward(at::add(x[0], x[1]), x[2], 0);
    const at::Tensor cotangent = at::_to_copy(masked, at::kFloat);
    const at::Tensor centered = at::sub(at::_to_copy(x[3], at::kFloat), x[4]);
    const at::Tensor sum = at::sum(cotangent, reduced, true);
    const at::Tensor product = at::sum(at::mul(cotangent, centered), reduced, true);
    const at::Tensor rest = at::sub(at::sub(cotangent, at::div(sum, 288.0)), at::mul(centered, product));
    return Tensors{at::_to_copy(rest, at::kBFloat16), sum, product, masked};
  });
  CHECK(launches >= 3);
}

TEST(nan_and_infinity) {
  at::Tensor x = real({4, 16});
  x.index_put_({at::scalar_tensor(0, at::kLong), at::scalar_tensor(3, at::kLong)}, at::scalar_tensor(NAN));
  x.index_put_({at::scalar_tensor(1, at::kLong), at::scalar_tensor(2, at::kLong)}, at::scalar_tensor(INFINITY));
  check({x}, [](const Tensors& in) {
    return Tensors{at::relu(in[0] * 2), (in[0] * 2).amax(1), at::maximum(in[0] * 1, -in[0]), at::softmax(in[0] * 2, 1)};
  });
}

TEST(layouts_of_inputs) {
  check({real({8, 24}).t(), real({24, 8})}, [](const Tensors& x) { return Tensors{at::exp(x[0]) * x[1]}; });
  check({real({4, 3, 5, 7}).contiguous(at::MemoryFormat::ChannelsLast), real({1, 3, 1, 1})},
        [](const Tensors& x) { return Tensors{at::relu(x[0] * x[1] + 1)}; });
  check({real({6, 20}).slice(1, 1, 19), real({6, 18})}, [](const Tensors& x) { return Tensors{at::sin(x[0]) * x[1]}; });
  check({real({5, 1, 4}).expand({5, 6, 4}), real({5, 6, 4})},
        [](const Tensors& x) { return Tensors{x[0] * x[1] + 1}; });
  check({real({2, 3, 4, 5}).permute({0, 2, 1, 3}), real({2, 4, 3, 5})},
        [](const Tensors& x) { return Tensors{(at::tanh(x[0]) + x[1]).sum(-1)}; });
}

TEST(permutations_that_leave_memory_as_it_is) {
  const Tensors inputs{real({2, 12, 5, 7}).contiguous(at::MemoryFormat::ChannelsLast), real({12}), real({12, 1, 1})};
  const auto program = [](const Tensors& x) {
    const at::Tensor y = x[0] * 2;
    const at::Tensor norm = at::layer_norm(y.permute({0, 2, 3, 1}), {12}, x[1], x[1]);
    return Tensors{norm.permute({0, 3, 1, 2}) * x[2] + y, norm.sum({0, 1, 2})};
  };
  // One for all rows, and one that adds up the sums of its thread blocks.
  CHECK_EQ(check(inputs, program), 2);
}

TEST(reductions_of_rows) {
  for (const std::int64_t columns : {2, 3, 64, 1000, 5001}) {
    check({real({5, columns})}, [](const Tensors& x) {
      const at::Tensor y = x[0] * 2;
      return Tensors{y.sum(1), y.mean(-1, true), y.amax(1), y.amin(1), at::softmax(y, 1), at::log_softmax(y, 1)};
    });
  }
  check({real({3, 4, 96}, at::kBFloat16), real({96}, at::kBFloat16)}, [](const Tensors& x) {
    const at::Tensor y = x[0] + x[0];
    return Tensors{at::layer_norm(y, {96}, x[1], x[1]), y * at::rsqrt(y.square().mean(-1, true) + 1e-5) * x[1]};
  });
}

TEST(a_norm_of_one_row_is_one_kernel) {
  const int launches = check({real({1, 1, 96}, at::kBFloat16), real({96}, at::kBFloat16)}, [](const Tensors& x) {
    const at::Tensor y = x[0].to(at::kFloat);
    return Tensors{x[1] * (y * at::rsqrt(y.pow(2).mean(-1, true) + 1e-5)).to(at::kBFloat16)};
  });
  CHECK_EQ(launches, 1);
}

TEST(chains_of_one_element_are_one_kernel) {
  CHECK_EQ(check({real({1}), real({1, 1})}, [](const Tensors& x) { return Tensors{at::exp(x[0] + x[1]) * 2}; }), 1);
  CHECK_EQ(check({real({})}, [](const Tensors& x) { return Tensors{at::exp(x[0] + 1) * 2}; }), 1);
}

TEST(a_matrix_times_one_row) {
  const auto gated = [](const Tensors& x) {
    return Tensors{at::silu(at::linear(x[0], x[1], x[3])) * at::linear(x[0], x[2]) + x[4]};
  };
  const auto check_gated = [&](std::int64_t columns, at::ScalarType dtype) {
    const Tensors inputs{real({1, 1, columns}, dtype), real({24, columns}, dtype), real({24, columns}, dtype),
                         real({24}, dtype), real({1, 1, 24}, dtype)};
    CHECK_EQ(check(inputs, gated), 1);
  };
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) check_gated(96, dtype);
  for (const std::int64_t columns : {2, 37, 2048}) check_gated(columns, at::kBFloat16);
  check({real({64}), real({5, 64}), real({5})},
        [](const Tensors& x) { return Tensors{at::linear(x[0], x[1], x[2]) * 2}; });
  check({real({1, 8, 64}).slice(1, 7, 8), real({64, 64})},
        [](const Tensors& x) { return Tensors{at::linear(x[0], x[1]), at::linear(at::relu(x[0]) * 2, x[1])}; });
}

TEST(matrices_times_one_row_are_one_launch) {
  const Tensors inputs{real({1, 1, 256}), real({128, 256}), real({64, 256}), real({64, 256})};
  const auto projections = [](const Tensors& x) {
    return Tensors{at::linear(x[0], x[1]), at::linear(x[0], x[2]), at::linear(x[0], x[3])};
  };
  CHECK_EQ(check(inputs, projections), 1);
}

TEST(reductions_of_rows_that_are_interleaved_in_memory) {
  check({real({3, 10, 40})}, [](const Tensors& x) {
    const at::Tensor y = x[0].exp();
    return Tensors{y.sum(1), y.mean(1, true) * y, at::softmax(x[0] * 2, 1)};
  });
  check({real({50, 64})}, [](const Tensors& x) { return Tensors{(x[0] * x[0]).amax(0)}; });
}

TEST(sums_over_rows_and_of_everything) {
  check({real({70, 48}), real({70, 48})}, [](const Tensors& x) {
    const at::Tensor y = x[0] * x[1];
    return Tensors{y.sum(0), y.mean(0), y.sum(), y.mean(), (y - x[1]).square().sum()};
  });
  check({real({4, 9, 33})}, [](const Tensors& x) { return Tensors{at::sin(x[0]).sum({0, 1})}; });
  check({real({300, 5})}, [](const Tensors& x) { return Tensors{at::sin(x[0]).sum(0), x[0].exp()}; });
}

TEST(moments_of_channels) {
  check({real({6, 4, 5, 5}), real({4}), real({4})}, [](const Tensors& x) {
    auto [y, mean, scale] = at::_native_batch_norm_legit(x[0] * 2, x[1], x[2], true, 0.1, 1e-5);
    return Tensors{at::relu(y), mean};
  });
  check({real({3, 8, 5, 5}), real({8}), real({8})}, [](const Tensors& x) {
    auto [y, mean, scale] = at::native_group_norm(x[0] * 2, x[1], x[2], 3, 8, 25, 4, 1e-5);
    return Tensors{at::silu(y), mean, scale};
  });
  check({real({6, 4, 5, 5}), real({6, 4, 5, 5}), real({4}), real({4}), real({4}).abs()}, [](const Tensors& x) {
    auto [dx, dw, db] = at::native_batch_norm_backward(x[0] * 2, x[1], x[2], {}, {}, x[3], x[4], true, 1e-5,
                                                       std::array<bool, 3>{true, true, true});
    return Tensors{dx * 2, dw, db};
  });
  check({real({128, 24})}, [](const Tensors& x) { return Tensors{(x[0] * 2).var(0), (x[0] * 2).mean(0)}; });
}

TEST(gradient_of_a_batch_norm_in_mixed_precision) {
  const auto images = real({8, 32, 6, 6}, at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast);
  const auto gradient = [](const Tensors& x) {
    const std::vector<std::int64_t> reduced{0, 2, 3};
    const at::Tensor cotangent = at::_to_copy(x[1].expand({8, 32, 6, 6}), at::kFloat);
    const at::Tensor centered = at::sub(at::_to_copy(x[0], at::kFloat), x[2]);
    const at::Tensor sum = at::sum(cotangent, reduced, true);
    const at::Tensor product = at::sum(at::mul(cotangent, centered), reduced, true);
    const at::Tensor along = at::div(at::mul(at::mul(x[3], x[3]), product), 288.0);
    const at::Tensor rest = at::sub(at::sub(cotangent, at::div(sum, 288.0)), at::mul(centered, along));
    return Tensors{at::_to_copy(at::mul(rest, x[3]), at::kBFloat16), sum.reshape({-1}), product.reshape({-1})};
  };
  const std::vector<at::Tensor> cotangents{real({8, 32, 1, 1}, at::kBFloat16), real({8, 32, 6, 6}, at::kBFloat16)};
  for (const at::Tensor& cotangent : cotangents) {
    check({images, cotangent, real({1, 32, 1, 1}), real({1, 32, 1, 1}).abs()}, gradient);
  }
  check({images, real({8, 32}, at::kBFloat16), real({1, 32, 1, 1}), real({1, 32, 1, 1}).abs()}, [&](const Tensors& x) {
    const at::Tensor even = at::div(x[1].unsqueeze(2).unsqueeze(3).expand({8, 32, 6, 6}), 36);
    return gradient({x[0], even, x[2], x[3]});
  });
}

TEST(gradients_of_norms_and_softmax) {
  check({real({9, 64}), real({9, 64}), real({64}), real({9, 1}), real({9, 1}).abs()}, [](const Tensors& x) {
    auto [dx, dw, db] = at::native_layer_norm_backward(x[0] * 2, x[1], {64}, x[3], x[4], x[2], x[2],
                                                       std::array<bool, 3>{true, true, true});
    return Tensors{dx, dw, db};
  });
  check({real({9, 50}), at::softmax(real({9, 50}), 1)},
        [](const Tensors& x) { return Tensors{at::_softmax_backward_data(x[0] * 3, x[1], 1, at::kFloat) * 2}; });
}

TEST(rows_that_begin_between_vectors) {
  for (const std::int64_t columns : {1025, 2047, 4098, 17'001}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      check({real({5, columns}, dtype), real({columns}, dtype)}, [](const Tensors& x) {
        const at::Tensor y = x[0] * 2;
        return Tensors{y.sum(1), y.amax(1), at::softmax(y, 1), y * x[1], at::layer_norm(y, {x[1].size(0)}, x[1], x[1])};
      });
      check({real({5, columns}, dtype), index({5}, columns), real({}), real({}).abs() + 1}, [](const Tensors& x) {
        const at::Tensor scores = at::_log_softmax(at::_to_copy(x[0], at::kFloat), 1, false);
        const at::Tensor gradient = at::nll_loss_backward(x[2], scores, x[1], {}, at::Reduction::Mean, -100, x[3]);
        return Tensors{
            at::nll_loss(scores, x[1]),
            at::_to_copy(at::_log_softmax_backward_data(gradient, scores, 1, at::kFloat), x[0].scalar_type())};
      });
    }
    at::Tensor holes = real({6, columns});
    holes.index_put_({at::scalar_tensor(2, at::kLong)}, at::scalar_tensor(-INFINITY));
    holes.index_put_({at::scalar_tensor(3, at::kLong), at::scalar_tensor(columns - 1, at::kLong)},
                     at::scalar_tensor(NAN));
    check({holes}, [](const Tensors& x) { return Tensors{at::softmax(x[0] * 2, 1), (x[0] * 2).amax(1)}; });
    check({real({5 * columns + 3}).slice(0, 3).view({5, columns})},  // not aligned
          [](const Tensors& x) { return Tensors{at::softmax(x[0] * 2, 1)}; });
  }
}

TEST(losses_over_rows_with_gaps) {
  for (const std::int64_t columns : {1026, 1027}) {
    const at::Tensor memory = real({2, 8, 1032}, at::kBFloat16);
    check({memory.slice(2, 0, columns), index({16}, columns), real({}), real({}).abs() + 1}, [=](const Tensors& x) {
      const at::Tensor rows = at::reshape(at::_to_copy(x[0], at::kFloat), {-1, columns});
      const at::Tensor scores = at::_log_softmax(rows, 1, false);
      const at::Tensor gradient = at::nll_loss_backward(x[2], scores, x[1], {}, at::Reduction::Mean, -100, x[3]);
      const at::Tensor of_rows = at::_log_softmax_backward_data(gradient, scores, 1, at::kFloat);
      return Tensors{at::_to_copy(at::reshape(of_rows, {2, 8, columns}), at::kBFloat16), at::nll_loss(scores, x[1])};
    });
  }
}

namespace {

/// The derivative of a loss of log-probabilities, in the dtype of what these came from.
at::Tensor loss_gradient(const at::Tensor& scores, const Tensors& x, at::ScalarType dtype) {
  const at::Tensor gradient = at::nll_loss_backward(x[2], scores, x[1], {}, at::Reduction::Mean, 1, x[3]);
  return at::_to_copy(at::_log_softmax_backward_data(gradient, scores, 1, scores.scalar_type()), dtype);
}

/// Rows of which some hold numbers that are not finite, or nothing else.
at::Tensor rows_with_extremes(std::int64_t rows, std::int64_t columns, at::ScalarType dtype) {
  at::Tensor x = at::randn({rows, columns}, at::kDouble) * 8;
  const auto put = [&](std::int64_t row, std::int64_t first, std::int64_t end, double value) {
    x.select(0, row).slice(0, first, end).fill_(value);
  };
  put(0, 0, columns, -INFINITY);
  put(1, columns - 1, columns, INFINITY);
  put(2, 3, columns, -INFINITY);
  put(3, columns / 2, columns / 2 + 1, NAN);
  put(4, 0, columns, 1e4);
  return x.to(dtype);
}

}  // namespace

TEST(softmax_of_rows_too_long_for_registers) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t columns : {40'000, 40'003}) {
      check({rows_with_extremes(6, columns, dtype), index({6}, columns)}, [](const Tensors& x) {
        const at::Tensor y = x[0] * 1;
        const at::Tensor scores = at::log_softmax(y, 1);
        return Tensors{at::softmax(y, 1), scores, at::nll_loss(scores, x[1], {}, at::Reduction::Sum, 2),
                       at::logsumexp(y, {1})};
      });
    }
  }
}

TEST(maxima_of_log_softmax_follow_from_those_of_its_argument) {
  for (const std::int64_t columns : {30, 1027, 40'000}) {
    check({rows_with_extremes(6, columns, at::kFloat)}, [](const Tensors& x) {
      const at::Tensor y = x[0] * 1;
      const at::Tensor scores = at::_log_softmax(y, 1, false);
      const at::Tensor again = at::add(at::sub(y, at::amax(y, {1}, true)), at::amax(scores, {1}, true));
      return Tensors{at::amax(scores, {1}, true), again,
                     at::where(at::eq(again, scores), at::zeros_like(again), again)};
    });
  }
}

TEST(rows_with_gaps_that_end_between_vectors) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t columns : {1025, 1030, 1031}) {
      const auto with_gaps = [&](std::int64_t rows) { return real({rows, 1032}, dtype).slice(1, 0, columns); };
      // Positive weights: sums in which terms cancel would not tell how near they are.
      const at::Tensor weights = real({columns}).abs();
      check(
          {with_gaps(17), index({17}, columns), real({}), real({}).abs() + 1, real({17, 1}), weights},
          [=](const Tensors& x) {
            const at::Tensor scores = at::sub(at::_to_copy(x[0], at::kFloat), x[4]);
            const at::Tensor gradient = loss_gradient(scores, x, dtype);
            return Tensors{at::sum(gradient, {0}), at::sum(at::_to_copy(gradient, at::kFloat) * x[5], {1})};
          },
          dtype);
    }
  }
}

TEST(a_gradient_is_written_into_rows_with_gaps) {
  for (const std::int64_t columns : {1025, 1031}) {
    for (const bool sums : {false, true}) {
      const at::Tensor logits = real({2, 8, 1032}, at::kBFloat16).slice(2, 0, columns);
      const auto launches = check({logits, index({16}, columns), real({}), real({}).abs() + 1}, [=](const Tensors& x) {
        const at::Tensor rows = at::reshape(at::_to_copy(x[0], at::kFloat), {-1, columns});
        const at::Tensor gradient = loss_gradient(at::_log_softmax(rows, 1, false), x, at::kBFloat16);
        const at::Tensor padded = at::constant_pad_nd(at::reshape(gradient, {2, 8, columns}), {0, 1032 - columns});
        return sums ? Tensors{padded, at::sum(gradient, {0})} : Tensors{padded};
      });
      CHECK(launches >= 1);
    }
  }
}

TEST(losses_of_classes) {
  check({real({12, 30}), index({12}, 30)}, [](const Tensors& x) {
    const at::Tensor logits = at::log_softmax(x[0] * 2, 1);
    return Tensors{at::nll_loss(logits, x[1]), at::nll_loss(logits, x[1], {}, at::Reduction::None)};
  });
  check({real({12, 30}, at::kBFloat16), index({12}, 30)},
        [](const Tensors& x) { return Tensors{at::cross_entropy_loss(x[0] * 2, x[1])}; });
}

TEST(parts_of_results) {
  check({real({6, 16}), real({6, 24})}, [](const Tensors& x) {
    return Tensors{at::cat({at::sin(x[0]), x[1] * 2}, 1), at::constant_pad_nd(x[0] * 2, {1, 2}, 0.5) + 1};
  });
  check({real({6, 16}), real({6, 16})}, [](const Tensors& x) {
    const at::Tensor both = at::cat({x[0], x[1]}, 0);
    return Tensors{both * both, at::stack({x[0], x[1]}, 1).exp()};
  });
  check({real({2, 4, 32}), real({4, 32}), real({4, 32})}, [](const Tensors& x) {  // rotary embedding
    const std::vector<at::Tensor> halves = x[0].chunk(2, -1);
    return Tensors{x[0] * x[1] + at::cat({-halves[1], halves[0]}, -1) * x[2]};
  });
}

TEST(parts_whose_ends_are_ends_of_vectors) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    check({real({6, 16}, dtype), real({6, 24}, dtype), real({6, 8}, dtype)}, [](const Tensors& x) {
      const at::Tensor all = at::cat({x[0], x[1], x[2]}, 1);
      return Tensors{all * 2, at::softmax(all, 1)};
    });
    check({real({6, 24}, dtype), real({6, 32}, dtype)}, [](const Tensors& x) {
      return Tensors{at::constant_pad_nd(x[0], {0, 8}, 0) * x[1], at::constant_pad_nd(x[0], {-8, 16}, 0) + 1,
                     at::constant_pad_nd(x[1] * 2, {-8, -8}, 0)};
    });
    check({real({2, 4, 32}, dtype), real({4, 32}, dtype), real({4, 32}, dtype)}, [](const Tensors& x) {
      const std::vector<at::Tensor> halves = x[0].chunk(2, -1);
      return Tensors{x[0] * x[1] + at::cat({-halves[1], halves[0]}, -1) * x[2]};
    });
    check({real({3, 2, 16}, dtype), real({3, 5, 16}, dtype)},
          [](const Tensors& x) { return Tensors{at::cat({x[0], x[1]}, 1).exp(), at::stack({x[1], x[1]}, 1) * 3}; });
    check({real({6, 17}, dtype), real({6, 15}, dtype)},  // no ends of vectors
          [](const Tensors& x) { return Tensors{at::cat({x[0], x[1]}, 1) * 2}; });
    check({real({6, 16}, dtype), real({6 * 16 + 1}, dtype).slice(0, 1).view({6, 16})},  // not aligned
          [](const Tensors& x) { return Tensors{at::cat({x[0], x[1]}, 1) * 2}; });
  }
}

TEST(rows_that_indices_choose) {
  check({real({11, 40}), index({7, 3}, 11)},
        [](const Tensors& x) { return Tensors{at::embedding(x[0], x[1]) * 2 + 1}; });
  check({real({11, 40}), index({9}, 11), real({9, 40})},
        [](const Tensors& x) { return Tensors{at::index_select(x[0], 0, x[1]) * x[2]}; });
  check({real({9, 40}), index({9, 1}, 40), real({9, 1})},
        [](const Tensors& x) { return Tensors{at::scatter_add(x[0] * 2, 1, x[1], x[2]).exp()}; });
}

TEST(an_index_out_of_bounds_is_an_error) {
  register_executor(check::kKernelsOnHost);
  const Program program = [](const Tensors& x) { return Tensors{at::embedding(x[0], x[1]) * 2 + 1}; };
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  const auto compiled = compile(recorded(program, {real({11, 40}), index({4}, 11)}), options);
  CHECK_THROWS(compiled->run({real({11, 40}), at::full({4}, 11, at::kLong)}), c10::Error);
}

TEST(inputs_that_are_written_over) {
  const Program program = [](const Tensors& x) {
    at::Tensor y = x[0];
    y.mul_(x[1]).add_(at::softmax(x[1], 1));
    return Tensors{y * 2, y};
  };
  register_executor(check::kKernelsOnHost);
  const Tensors inputs{real({6, 40}), real({6, 40})};
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  const auto compiled = compile(recorded(program, inputs), options);
  const Tensors given{inputs[0].clone(), inputs[1]};
  const Tensors results = compiled->run(given);
  const Tensors expected = program({inputs[0].clone(), inputs[1]});
  check_equal(results[0], expected[0], 0);
  check_equal(given[0], expected[1], 1);
}

TEST(a_kernel_fits_a_class_of_sizes_and_addresses) {
  register_executor(check::kKernelsOnHost);
  const Program program = [](const Tensors& x) { return Tensors{at::gelu(x[0] * x[1])}; };
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  const auto compiled = compile(recorded(program, {real({8, 16}), real({16})}), options);
  const at::Tensor memory = real({8 * 16 + 1});
  for (const std::int64_t offset : {0, 1}) {  // vectors need aligned addresses
    const at::Tensor x = memory.slice(0, offset, offset + 128).view({8, 16});
    const Tensors inputs{x, real({16})};
    check_equal(compiled->run(inputs)[0], program(inputs)[0], 0);
  }
}

namespace {

at::Tensor dropout_mask(const at::Tensor& state, const at::Tensor& like, double p) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("thunder::dropout_mask", "");
  std::vector<c10::IValue> stack{state, like.sizes(), like.strides(), p};
  op.callBoxed(stack);
  return stack[0].toTensor();
}

}  // namespace

TEST(masks_of_dropout_by_counter) {
  const Program dropped = [](const Tensors& x) {
    const at::Tensor mask = dropout_mask(x[0], x[1], 0.3);
    return Tensors{at::native_dropout_backward(x[1] * 2, mask, 1 / 0.7), mask};
  };
  for (const std::int64_t width : {1, 2, 4, 8}) {
    const at::Tensor state = at::tensor({INT64_C(-7), INT64_C(1) << 34, INT64_C(512), width}, at::kLong);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) check({state, real({130, 40}, dtype)}, dropped);
    check({state, real({30, 37})}, dropped);
    check({state, real({64, 80}).t()}, dropped);
    for (const std::int64_t columns : {80, 37, 4000}) {  // in fusions of rows
      check({state, real({9, columns}), real({columns})}, [](const Tensors& x) {
        const at::Tensor y = x[1] * dropout_mask(x[0], x[1], 0.3);
        return Tensors{at::softmax(y, 1), at::layer_norm(y, {x[1].size(1)}, x[2], x[2])};
      });
    }
  }
}

TEST(casts_of_many_tensors_are_one_launch) {
  const Program casts = [](const Tensors& x) {
    Tensors results;
    for (const at::Tensor& each : x) results.push_back(at::_to_copy(each, at::kBFloat16));
    return results;
  };
  CHECK_EQ(check({real({24, 40}), real({5000}), real({8}), real({16, 3, 8}), real({2048})}, casts), 1);
  // Odd sizes have no vectors, and so another text.
  CHECK_EQ(
      check({real({24, 40}), real({24, 8}), real({16}), real({8}), real({7}), real({33, 3}), real({2049}), real({101})},
            casts),
      2);
  Tensors many;
  for (int i = 0; i < 150; ++i) many.push_back(real({8 * (1 + i % 5)}));
  CHECK_EQ(check(many, casts), 3);
}

TEST(sums_over_many_or_few_rows) {
  for (const std::int64_t rows : {2, 3, 31, 1000, 4099}) {
    for (const std::int64_t columns : {1, 7, 64, 520}) {
      check({real({rows, columns}, at::kBFloat16), real({rows, columns}, at::kBFloat16), real({columns})},
            [](const Tensors& x) {
              const at::Tensor y = at::mul(x[0], x[1]);
              const at::Tensor wide = at::_to_copy(y, at::kFloat);
              return Tensors{at::sum(wide, {0}), at::sum(at::mul(wide, x[2]), {0}), at::add(y, 1)};
            });
    }
  }
}

TEST(sums_of_many_gradients_are_two_launches) {
  Tensors gradients;
  for (const std::int64_t rows : {70, 3, 128}) gradients.push_back(real({rows, 64}, at::kBFloat16));
  const Program sums = [](const Tensors& x) {
    Tensors results;
    for (const at::Tensor& each : x) results.push_back(at::sum(at::_to_copy(each, at::kFloat), {0}));
    return results;
  };
  CHECK_EQ(check(gradients, sums), 2);
}

TEST(members_of_a_batch_that_lie_otherwise_have_kernels_of_their_own) {
  const Program casts = [](const Tensors& x) {
    Tensors results;
    for (const at::Tensor& each : x) results.push_back(at::_to_copy(each, at::kHalf));
    return results;
  };
  register_executor(check::kKernelsOnHost);
  const Tensors traced{real({6, 8}), real({8, 16}), real({8}), real({16})};
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  const auto compiled = compile(recorded(casts, traced), options);
  const Tensors given{real({8, 6}).t(), real({8 * 16 + 1}).slice(0, 1).view({8, 16}), real({8}), real({16})};
  const Tensors results = compiled->run(given);
  const Tensors expected = casts(given);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(at::equal(results[i], expected[i]));
  }
}

TEST(updates_of_many_tensors_are_one_launch) {
  const Program updates = [](const Tensors& x) {
    for (std::size_t i = 0; i < x.size(); i += 2) x[i].mul_(0.9).add_(x[i + 1], 0.1);
    return Tensors{x[0], x[2], x[4]};
  };
  Tensors inputs;
  for (const std::int64_t size : {64, 128, 8}) {
    inputs.push_back(real({size}));
    inputs.push_back(real({size}));
  }
  register_executor(check::kKernelsOnHost);
  Options options;
  options.executors = with_fallback({find_executor("cuda_on_host")});
  options.background = false;
  const auto compiled = compile(recorded(updates, inputs), options);
  Tensors given;
  for (const at::Tensor& input : inputs) given.push_back(input.clone());
  const int before = check::launches_on_host();
  static_cast<void>(compiled->run(given));
  CHECK_EQ(check::launches_on_host() - before, 1);
  static_cast<void>(updates(inputs));
  for (const std::size_t i : {0U, 2U, 4U}) check_equal(given[i], inputs[i], i);
}

TEST(reductions_of_one_element_without_dimensions) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    check({real({}, dtype), real({}, dtype)}, [](const Tensors& x) {
      const at::Tensor product = x[0] * x[1];
      return Tensors{product.sum({0}) + 1, (product + x[1]).mean({-1}).exp(), at::amax(product * 2, {0}) - x[0]};
    });
    // A mean over one dimension of another tensor, and the derivative of a norm.
    check({real({}, dtype), real({}, dtype)}, [](const Tensors& x) {
      const at::Tensor norm = x[0].abs().clamp_min(1e-8);
      const at::Tensor unit = x[1] / norm;
      return Tensors{(unit * unit).sum({0}).log1p() + (unit / norm).masked_fill(norm == 0, 0)};
    });
  }
  const auto one = [] { return real({}, at::kBFloat16); };
  check({one(), one(), one(), one(), one()}, [](const Tensors& x) {
    const at::Tensor bound = at::scalar_tensor(1e-8, at::kFloat);
    const at::Tensor norm = at::clamp_min(x[1], bound).to(at::kBFloat16);
    const at::Tensor unit = x[0] / norm;
    const at::Tensor sum = (unit * unit).sum({0});
    const at::Tensor gradient = x[2] + x[4] + (x[3] + x[4]) / (sum + 1);
    const at::Tensor scaled = gradient * unit;
    const at::Tensor side = -scaled * (unit / norm) * (x[0] / x[1]).masked_fill(x[1] == 0, 0);
    return Tensors{scaled / norm + scaled / norm + side + side};
  });
}

}  // namespace thunder::compile
