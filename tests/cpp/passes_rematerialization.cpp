#include <algorithm>
#include <cstdint>
#include <optional>

#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/rematerialization.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kSin = add_row("aten::sin(Tensor self) -> Tensor");
const Operator& kCos = add_row("aten::cos(Tensor self) -> Tensor");
const Operator& kMm = add_row("aten::mm(Tensor self, Tensor mat2) -> Tensor");
const Operator& kMul = add_row("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor");
const Operator& kSum = add_row("aten::sum.dim(Tensor self, int[] dim) -> Tensor");
const Operator& kRelu = add_row("aten::relu(Tensor self) -> Tensor");
const Operator& kMasked =
    add_row("aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor");
const Operator& kTranspose = add_row("aten::t(Tensor(a) self) -> Tensor(a)");
const Operator& kCast = add_row("aten::_to_copy(Tensor self, *, ScalarType? dtype=None) -> Tensor");
const Operator& kGather = add_row(
    "thunder::gather_shards(Tensor shard, int[] size, str group_name, int group_size, str bucket, ScalarType? "
    "dtype=None, ScalarType? reduce_dtype=None) -> Tensor");
const Operator& kRand = add_row("aten::rand_like(Tensor self) -> Tensor", /*random=*/true);

/// A forward that gives one output, and a backward that multiplies the saved values with the cotangent.
struct Pair {
  std::shared_ptr<TraceContext> context = std::make_shared<TraceContext>();
  TypePtr type;
  Trace forward{"forward", context};
  Trace backward{"backward", context};
  ValueId x;

  explicit Pair(Device device = {})
      : type(tensor_type(Dtype::kFloat32, {8, 8}, device)), x(forward.add_input(type, "x")) {}

  ValueId call(const Operator& op, ArgumentList arguments, TypePtr of = nullptr) {
    return add_call(forward, op, std::move(arguments), of == nullptr ? type : of);
  }
  std::pair<Trace, Trace> run(ValueId output, const std::vector<ValueId>& saved, Recompute policy,
                              std::optional<std::int64_t> most_saved = std::nullopt) {
    forward.outputs = {output};
    for (const ValueId value : saved) {
      forward.outputs.emplace_back(value);
      backward.add_input(forward.value(value).type);
    }
    ValueId gradient = backward.add_input(type, "cotangent");
    for (std::size_t i = 0; i < saved.size(); ++i) {
      gradient = add_call(backward, kMul, {gradient, backward.inputs[i]}, type);
    }
    backward.outputs = {gradient};
    auto result = rematerialize(forward, backward, {policy, 1, most_saved}, &find_row);
    verify(result.first, "test");
    verify(result.second, "test");
    return result;
  }
};

std::size_t saved_count(const Trace& forward) { return forward.outputs.size() - 1; }

}  // namespace

TEST(cheap_values_are_computed_again_with_a_comment) {
  Pair e;
  const ValueId product = e.call(kMm, {e.x, e.x});
  const ValueId sine = e.call(kSin, {product});
  const ValueId cosine = e.call(kCos, {sine});
  const auto [forward, backward] = e.run(cosine, {product, sine, cosine}, Recompute::kFast);
  CHECK_EQ(saved_count(forward), 1U);
  CHECK(forward.outputs[1] == Argument(product));
  CHECK_EQ(print(backward), R"(# backward: rematerialization
import torch

@torch.no_grad()
def backward(t0, cotangent):
  # t0: "cpu f32[8, 8]"
  # cotangent: "cpu f32[8, 8]"
  t4 = torch.ops.aten.mul.Tensor(cotangent, t0)  # t4: "cpu f32[8, 8]"
  del cotangent
  t7 = torch.ops.aten.sin.default(t0)  # t7: "cpu f32[8, 8]"  # recomputed
  del t0
  t5 = torch.ops.aten.mul.Tensor(t4, t7)  # t5: "cpu f32[8, 8]"
  del t4
  t8 = torch.ops.aten.cos.default(t7)  # t8: "cpu f32[8, 8]"  # recomputed
  del t7
  t6 = torch.ops.aten.mul.Tensor(t5, t8)  # t6: "cpu f32[8, 8]"
  del t5, t8
  return (t6,)
)");
}

TEST(parameters_on_a_gpu_are_gathered_again_for_matmuls) {
  Pair e;
  const Device gpu{DeviceType::kCuda, 0};
  const TypePtr half = tensor_type(Dtype::kBfloat16, {8, 8}, gpu);
  e.type = tensor_type(Dtype::kFloat32, {8, 8}, gpu);
  const ValueId shard = e.forward.add_input(tensor_type(Dtype::kFloat32, {2, 8}, gpu), "shard");
  const ValueId x = e.forward.add_input(half, "x");
  const ValueId weight =
      e.call(kCast, {e.call(kGather, {shard, ArgumentList{8, 8}, "0", 4, ""}), Dtype::kBfloat16}, half);
  const ValueId product = e.call(kMm, {x, weight}, half);
  e.forward.outputs = {product, weight};
  e.backward.add_input(half);
  e.backward.outputs = {
      add_call(e.backward, kMm, {e.backward.add_input(half, "cotangent"), e.backward.inputs[0]}, half)};
  const auto [forward, backward] = rematerialize(e.forward, e.backward, {Recompute::kFast, 1}, &find_row);
  CHECK(forward.outputs == ArgumentList({product, shard}));
}

TEST(products_and_random_values_are_saved) {
  Pair e;
  const ValueId product = e.call(kMm, {e.x, e.x});
  const ValueId noise = e.call(kRand, {product});
  const auto [forward, backward] = e.run(product, {product, noise}, Recompute::kFast);
  CHECK_EQ(saved_count(forward), 2U);
  CHECK_EQ(backward.symbols.size(), e.backward.symbols.size());
}

TEST(the_smaller_side_is_saved) {
  Pair e;
  const TypePtr row = tensor_type(Dtype::kFloat32, {1, 8});
  const ValueId product = e.call(kMm, {e.x, e.x});
  const ValueId sum = e.call(kSum, {product, ArgumentList{0}}, row);
  const ValueId sine = e.call(kSin, {sum}, row);
  const auto [forward, backward] = e.run(product, {sine}, Recompute::kFast);
  CHECK_EQ(saved_count(forward), 1U);
  CHECK(forward.outputs[1] == Argument(sine) || forward.outputs[1] == Argument(sum));
}

TEST(only_views_are_free) {
  Pair e;
  const ValueId product = e.call(kMm, {e.x, e.x});
  const ValueId transposed = e.call(kTranspose, {product});
  const ValueId sine = e.call(kSin, {product});
  const auto [forward, backward] = e.run(product, {product, transposed, sine}, Recompute::kFree);
  CHECK_EQ(saved_count(forward), 2U);
  CHECK(forward.outputs[1] == Argument(product));
  CHECK(forward.outputs[2] == Argument(sine));
}

TEST(nothing_is_recomputed_without_a_policy) {
  Pair e;
  const ValueId sine = e.call(kSin, {e.x});
  const auto [forward, backward] = e.run(sine, {sine, e.call(kTranspose, {sine})}, Recompute::kNothing);
  CHECK_EQ(saved_count(forward), 2U);
}

TEST(what_meets_a_product_of_itself_is_saved_on_a_gpu) {
  constexpr std::int64_t kBytesOfStream = 8 * 8 * 4;
  struct Case {
    DeviceType device;
    Recompute policy;
    std::int64_t most_saved;
    bool saves_stream;
  };
  for (const auto [device, policy, most_saved, expected] :
       {Case{DeviceType::kCpu, Recompute::kFast, kBytesOfStream, false},
        Case{DeviceType::kCuda, Recompute::kFast, kBytesOfStream, true},
        Case{DeviceType::kCuda, Recompute::kFast, kBytesOfStream - 1, false},
        Case{DeviceType::kCuda, Recompute::kMemory, kBytesOfStream, false}}) {
    Pair e({device, 0});
    const ValueId half = e.call(kMm, {e.x, e.x}, tensor_type(Dtype::kBfloat16, {8, 8}, {device, 0}));
    const ValueId stream = e.call(kMul, {e.x, half});
    const ValueId sum = e.call(kMul, {stream, e.call(kMm, {e.call(kTranspose, {e.call(kSin, {stream})}), e.x})});
    const auto [forward, backward] = e.run(sum, {stream, e.x}, policy, most_saved);
    const bool saves_stream = std::ranges::find(forward.outputs, Argument(stream)) != forward.outputs.end();
    CHECK_EQ(saves_stream, expected);
  }
}

TEST(what_a_library_has_written_is_saved_before_what_a_fusion_would_have_to_write) {
  for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
    Pair e({device, 0});
    const TypePtr wide = tensor_type(Dtype::kFloat32, {8, 64}, {device, 0});
    const ValueId product = e.call(kMm, {e.x, e.x}, wide);
    const ValueId rows = e.call(kSum, {product, ArgumentList{1}}, tensor_type(Dtype::kFloat32, {8}, {device, 0}));
    const ValueId scaled = e.call(kMul, {product, rows}, wide);
    const auto [forward, backward] = e.run(product, {scaled}, Recompute::kFast);
    const bool saves_product = std::ranges::find(forward.outputs.begin() + 1, forward.outputs.end(),
                                                 Argument(product)) != forward.outputs.end();
    CHECK_EQ(saves_product, device == DeviceType::kCuda);
    CHECK_EQ(saved_count(forward), device == DeviceType::kCuda ? 2U : 1U);
  }
}

TEST(a_result_that_the_caller_is_given_is_saved_itself) {
  for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
    Pair e({device, 0});
    const ValueId product = e.call(kMm, {e.x, e.x});
    const ValueId result = e.call(kRelu, {product});
    const auto [forward, backward] = e.run(result, {result}, Recompute::kFast);
    CHECK(forward.outputs == (ArgumentList{result, result}));
  }
}

TEST(a_mask_comes_from_what_a_norm_reads_besides) {
  for (const bool has_two : {false, true}) {
    Pair e({DeviceType::kCuda, 0});
    const ValueId image = e.call(kMm, {e.x, e.x});
    const ValueId norm = e.call(kRelu, {e.call(kMul, {image, has_two ? e.call(kMm, {e.x, image}) : image})});
    e.backward.add_input(e.type, "image");
    const ValueId saved = e.backward.add_input(e.type, "norm");
    const ValueId cotangent = e.backward.add_input(e.type, "cotangent");
    const ValueId masked = add_call(e.backward, kMasked, {cotangent, saved, 0}, e.type);
    const ValueId centered = add_call(e.backward, kMul, {masked, e.backward.inputs[0]}, e.type);
    e.backward.outputs = {centered, add_call(e.backward, kMm, {cotangent, saved}, e.type)};
    e.forward.outputs = {e.call(kMm, {norm, e.x}), image, norm};
    const auto [forward, backward] = rematerialize(e.forward, e.backward, {Recompute::kFast, 1}, &find_row);
    verify(backward, "test");
    CHECK_EQ(saved_count(forward), 2U);
    const auto mask = std::ranges::find(backward.symbols, &kMasked, &BoundSymbol::op);
    CHECK_EQ(mask->arguments[1] == Argument(saved), has_two);
    CHECK(backward.symbols.back().arguments[1] == Argument(saved));
  }
}

TEST(another_backward_reads_what_was_saved_and_computes_the_rest_again) {
  Pair e;
  const ValueId product = e.call(kMm, {e.x, e.x});
  const ValueId sine = e.call(kSin, {product});
  e.forward.outputs = {sine, product, sine};
  Trace backward("backward", e.context);
  backward.add_input(e.type, "product");
  const ValueId saved_sine = backward.add_input(e.type, "sine");
  const ValueId cotangent = backward.add_input(e.type, "cotangent");
  backward.outputs = {add_call(backward, kMul, {cotangent, saved_sine}, e.type)};
  const ArgumentList saved = {product, product};  // the second time it is not read
  const Trace result = read_saved_values(e.forward, backward, 1, saved, &find_row);
  verify(result, "test");
  CHECK_EQ(result.inputs.size(), 3U);
  CHECK_EQ(result.symbols.size(), 2U);
  CHECK(result.symbols[0].op == &kSin);
  CHECK_EQ(result.symbols[0].comment, std::string("recomputed"));
  CHECK(result.symbols[0].arguments[0] == Argument(result.inputs[0]));
}

}  // namespace thunder::passes
