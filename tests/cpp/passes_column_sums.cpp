#include <string>
#include <vector>

#include "check.h"
#include "ir/builder.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/pass.h"

namespace thunder::passes {

extern const Pass kColumnSums;

namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kSin = add_row("aten::sin(Tensor self) -> Tensor");
const Operator& kMm = add_row("aten::mm(Tensor self, Tensor mat2) -> Tensor");
const Operator& kReshape = add_row("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)");
const Operator& kSum =
    add_row("aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor");
const Operator& kConvolutionBackward = add_row(
    "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] "
    "stride, "
    "SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] "
    "output_mask) "
    "-> (Tensor, Tensor, Tensor)");

/// The row that other tests of passes have, too: the first one of its name is found.
const Operator& permute() {
  static const Operator& row = []() -> const Operator& {
    const Operator* known = find_row("aten::permute", "");
    return known != nullptr ? *known : add_row("aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)");
  }();
  return row;
}

constexpr Device kGpu{DeviceType::kCuda, 0};

TypePtr channels_last(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, Device device = kGpu) {
  auto type = std::get<TensorType>(*tensor_type(Dtype::kBfloat16, {n, c, h, w}, device));
  type.strides = {c * h * w, 1, w * c, c};
  return make_type(std::move(type));
}
TypePtr plain(Dims sizes, Device device = kGpu) { return tensor_type(Dtype::kBfloat16, std::move(sizes), device); }

struct Example {
  Trace trace{"f", std::make_shared<TraceContext>()};

  /// `permute`, then rows of pixels, whose sum is that of the bias of a matmul.
  ValueId sum_of_pixels(ValueId image, Device device = kGpu) {
    const ValueId moved = add_call(trace, permute(), {image, ArgumentList{0, 2, 3, 1}}, plain({2, 4, 4, 8}, device));
    const ValueId rows = add_call(trace, kReshape, {moved, ArgumentList{32, 8}}, plain({32, 8}, device));
    return add_call(trace, kSum, {rows, ArgumentList{0}, true, Argument()}, plain({1, 8}, device));
  }
  [[nodiscard]] Trace rewritten() const {
    Trace made = kColumnSums.run(trace, &find_row);
    verify(made, "test");
    return made;
  }
};

const BoundSymbol* find(const Trace& trace, const Operator& op) {
  for (const BoundSymbol& symbol : trace.symbols) {
    if (symbol.op == &op) return &symbol;
  }
  return nullptr;
}

}  // namespace

TEST(the_sum_of_one_element_stays) {
  Example of;
  const ValueId x = of.trace.add_input(plain({}), "x");
  const ValueId y = add_call(of.trace, kSin, {x}, plain({}));
  for (const std::int64_t dim : {0, -1}) {
    of.trace.outputs.emplace_back(add_call(of.trace, kSum, {y, ArgumentList{dim}, false, Argument()}, plain({})));
  }
  CHECK_EQ(of.rewritten().symbols.size(), 3U);
}

TEST(a_sum_of_views_is_one_of_what_they_view) {
  Example e;
  const ValueId x = e.trace.add_input(channels_last(2, 8, 4, 4), "x");
  const ValueId made = add_call(e.trace, kSin, {x}, channels_last(2, 8, 4, 4));
  e.trace.outputs = {e.sum_of_pixels(made)};
  const Trace rewritten = e.rewritten();
  const BoundSymbol& sum = *find(rewritten, kSum);
  CHECK(sum.arguments[0] == Argument(made));
  CHECK(sum.arguments[1] == Argument(ArgumentList{0, 2, 3}));
}

TEST(sums_of_what_a_library_makes_and_of_a_cpu_stay) {
  Example e;
  const ValueId x = e.trace.add_input(plain({32, 32}), "x");
  const ValueId product = add_call(e.trace, kMm, {x, x}, channels_last(2, 8, 4, 4));
  const ValueId y = e.trace.add_input(channels_last(2, 8, 4, 4, {}), "y");
  const ValueId on_cpu = add_call(e.trace, kSin, {y}, channels_last(2, 8, 4, 4, {}));
  e.trace.outputs = {e.sum_of_pixels(product), e.sum_of_pixels(on_cpu, {})};
  for (const BoundSymbol& symbol : e.rewritten().symbols) {
    if (symbol.op == &kSum) CHECK(symbol.arguments[1] == Argument(ArgumentList{0}));
  }
}

TEST(a_sum_of_parts_of_a_dimension_stays) {
  Example e;
  const ValueId x = e.trace.add_input(plain({32, 8}), "x");
  const ValueId made = add_call(e.trace, kSin, {x}, plain({32, 8}));
  const ValueId parts = add_call(e.trace, kReshape, {made, ArgumentList{4, 64}}, plain({4, 64}));
  e.trace.outputs = {add_call(e.trace, kSum, {parts, ArgumentList{0}, true, Argument()}, plain({1, 64}))};
  CHECK(find(e.rewritten(), kSum)->arguments[0] == Argument(parts));
}

TEST(the_gradient_of_a_convolutions_bias_is_a_sum_of_its_own) {
  Example e;
  const ValueId x = e.trace.add_input(channels_last(2, 8, 4, 4), "x");
  const ValueId weight = e.trace.add_input(plain({8, 8, 1, 1}), "weight");
  const ValueId gradient = add_call(e.trace, kSin, {x}, channels_last(2, 8, 4, 4));
  const ValueId of_input = e.trace.add_value(channels_last(2, 8, 4, 4));
  const ValueId of_weight = e.trace.add_value(plain({8, 8, 1, 1}));
  const ValueId of_bias = e.trace.add_value(plain({8}));
  add_symbol(e.trace, kConvolutionBackward,
             {gradient, x, weight, ArgumentList{8}, ArgumentList{1, 1}, ArgumentList{0, 0}, ArgumentList{1, 1}, false,
              ArgumentList{0, 0}, 1, ArgumentList{true, true, true}},
             {of_input, of_weight, of_bias});
  e.trace.outputs = {of_input, of_weight, of_bias};
  const Trace made = e.rewritten();
  const BoundSymbol& sum = *find(made, kSum);
  CHECK(sum.arguments[0] == Argument(gradient));
  CHECK(sum.arguments[1] == Argument(ArgumentList{0, 2, 3}));
  CHECK(sum.results[0] == Argument(of_bias));
  const BoundSymbol& rest = *find(made, kConvolutionBackward);
  CHECK(rest.arguments[10] == Argument(ArgumentList{true, true, false}));
}

}  // namespace thunder::passes
