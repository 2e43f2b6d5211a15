#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "pass_operators.h"
#include "passes/random_draws.h"
#include "passes/rematerialization.h"

namespace thunder::passes {
namespace {

using namespace ir;  // NOLINT(google-build-using-namespace)

const Operator& kEmpty = add_row("aten::empty_like(Tensor self) -> Tensor");
const Operator& kZeros = add_row("aten::zeros_like(Tensor self) -> Tensor");
const Operator& kFill =
    add_row("aten::bernoulli_.float(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)", true);
const Operator& kScale = add_row("aten::mul_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)");
const Operator& kProduct = add_row("aten::mul.Tensor(Tensor self, Tensor other) -> Tensor");
[[maybe_unused]] const Operator& kWithState = add_row(
    "thunder::bernoulli_with_state(int[] size, int[] stride, ScalarType dtype, Device device, float p, Generator? "
    "generator=None) -> (Tensor, Tensor)",
    true);
[[maybe_unused]] const Operator& kFromState = add_row(
    "thunder::bernoulli_from_state(Tensor state, int[] size, int[] stride, ScalarType dtype, Device device, float p) "
    "-> "
    "Tensor");

const Operator& kDropout =
    add_row("aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)", true);
[[maybe_unused]] const Operator& kDropoutWithState =
    add_row("thunder::native_dropout_with_state(Tensor input, float p) -> (Tensor, Tensor, Tensor)", true);
[[maybe_unused]] const Operator& kMaskFromState = add_row(
    "thunder::native_dropout_mask_from_state(Tensor state, int[] size, int[] stride, ScalarType dtype, Device device, "
    "float p) -> Tensor");

/// A forward `x * mask`, and a backward that multiplies the mask with the cotangent.
struct Masked {
  std::shared_ptr<TraceContext> context = std::make_shared<TraceContext>();
  Trace forward{"forward", context};
  TypePtr type;
  ValueId x;

  explicit Masked(std::int64_t count) : type(tensor_type(Dtype::kFloat32, {count})), x(forward.add_input(type, "x")) {}

  ValueId fill(const Operator& fresh) {
    const ValueId memory = add_call(forward, fresh, {x}, type);
    return add_call(forward, kFill, {memory, 0.5}, type);
  }
  /// The mask of a dropout of `x`, whose output nobody reads.
  ValueId drop(double p, const Argument& train) {
    const ValueId output = forward.add_value(type);
    const ValueId mask = forward.add_value(tensor_type(Dtype::kBool, std::get<TensorType>(*type).sizes));
    add_symbol(forward, kDropout, {x, p, train}, {output, mask});
    return mask;
  }
  std::pair<Trace, Trace> run(ValueId mask, Recompute policy) {
    const ValueId product = add_call(forward, kProduct, {x, mask}, type);
    forward.outputs = {product, mask};
    Trace backward("backward", context);
    const ValueId saved = backward.add_input(forward.value(mask).type);
    const ValueId cotangent = backward.add_input(type, "cotangent");
    backward.outputs = {add_call(backward, kProduct, {cotangent, saved}, type)};
    auto result = rematerialize(forward, backward, {policy, 1}, &find_row);
    verify(result.first, "test");
    verify(result.second, "test");
    return result;
  }
};

bool draws_again(const Trace& backward) { return print(backward).find("_from_state") != std::string::npos; }

}  // namespace

TEST(a_mask_is_drawn_again_from_the_state_of_the_generator) {
  Masked e(8192);
  const auto [forward, backward] = e.run(e.fill(kEmpty), Recompute::kFast);
  CHECK_EQ(print(forward), R"(# forward: rematerialization
import torch

@torch.no_grad()
def forward(x):
  # x: "cpu f32[8192]"
  t1 = torch.ops.aten.empty_like.default(x)  # t1: "cpu f32[8192]"
  del t1
  (t2, generator_state) = torch.ops.thunder.bernoulli_with_state.default([8192], [1], torch.float32, torch.device("cpu"), 0.5)  # t2: "cpu f32[8192]", generator_state: "cpu ui8[5056]"
  t3 = torch.ops.aten.mul.Tensor(x, t2)  # t3: "cpu f32[8192]"
  del x, t2
  return (t3, generator_state)
)");
  CHECK_EQ(print(backward), R"(# backward: rematerialization
import torch

@torch.no_grad()
def backward(generator_state, cotangent):
  # generator_state: "cpu ui8[5056]"
  # cotangent: "cpu f32[8192]"
  t4 = torch.ops.thunder.bernoulli_from_state.default(generator_state, [8192], [1], torch.float32, torch.device("cpu"), 0.5)  # t4: "cpu f32[8192]"  # recomputed
  del generator_state
  t2 = torch.ops.aten.mul.Tensor(cotangent, t4)  # t2: "cpu f32[8192]"
  del cotangent, t4
  return (t2,)
)");
}

TEST(a_mask_smaller_than_the_state_is_saved) {
  Masked e(64);
  const auto [forward, backward] = e.run(e.fill(kEmpty), Recompute::kFast);
  CHECK(!draws_again(backward));
  CHECK(forward.symbols[1].op == &kFill);
}

TEST(a_mask_is_saved_where_only_what_is_free_is_computed_again) {
  Masked e(8192);
  CHECK(!draws_again(e.run(e.fill(kEmpty), Recompute::kFree).second));
}

TEST(what_is_not_fresh_memory_is_saved) {
  Masked e(8192);
  CHECK(!draws_again(e.run(e.fill(kZeros), Recompute::kFast).second));
}

TEST(a_mask_that_is_written_to_is_saved) {
  Masked e(8192);
  const ValueId mask = e.fill(kEmpty);
  CHECK(!draws_again(e.run(add_call(e.forward, kScale, {mask, 2.0}, e.type), Recompute::kFast).second));
}

TEST(the_mask_of_a_dropout_is_drawn_again) {
  Masked e(8192);
  const auto [forward, backward] = e.run(e.drop(0.5, true), Recompute::kFast);
  CHECK_EQ(print(forward), R"(# forward: rematerialization
import torch

@torch.no_grad()
def forward(x):
  # x: "cpu f32[8192]"
  (t1, t2, generator_state) = torch.ops.thunder.native_dropout_with_state.default(x, 0.5)  # t1: "cpu f32[8192]", t2: "cpu b8[8192]", generator_state: "cpu ui8[5056]"
  del t1
  t3 = torch.ops.aten.mul.Tensor(x, t2)  # t3: "cpu f32[8192]"
  del x, t2
  return (t3, generator_state)
)");
  CHECK_EQ(print(backward), R"(# backward: rematerialization
import torch

@torch.no_grad()
def backward(generator_state, cotangent):
  # generator_state: "cpu ui8[5056]"
  # cotangent: "cpu f32[8192]"
  t4 = torch.ops.thunder.native_dropout_mask_from_state.default(generator_state, [8192], [1], torch.float32, torch.device("cpu"), 0.5)  # t4: "cpu b8[8192]"  # recomputed
  del generator_state
  t2 = torch.ops.aten.mul.Tensor(cotangent, t4)  # t2: "cpu f32[8192]"
  del cotangent, t4
  return (t2,)
)");
}

TEST(the_mask_of_a_dropout_that_is_always_in_training_is_drawn_again) {
  Masked e(8192);
  CHECK(draws_again(e.run(e.drop(0.5, None{}), Recompute::kFast).second));
}

TEST(the_mask_of_a_dropout_that_draws_nothing_is_saved) {
  for (const auto& [p, train] : {std::pair(0.0, true), std::pair(1.0, true), std::pair(0.5, false)}) {
    Masked e(8192);
    const auto [forward, backward] = e.run(e.drop(p, train), Recompute::kFast);
    CHECK(!draws_again(backward));
    CHECK(forward.symbols[0].op == &kDropout);
  }
}

TEST(the_mask_of_a_dropout_that_is_written_to_is_saved) {
  Masked e(8192);
  const ValueId mask = e.drop(0.5, true);
  const ValueId scaled = add_call(e.forward, kScale, {mask, 2.0}, e.forward.value(mask).type);
  CHECK(!draws_again(e.run(scaled, Recompute::kFast).second));
}

TEST(an_operation_that_has_no_variant_with_a_state_stays) {
  Masked e(8192);
  e.forward.outputs = {e.drop(0.5, true)};
  const auto find_nothing = [](const std::string&, const std::string&) -> const Operator* { return nullptr; };
  CHECK_EQ(print(with_generator_states(e.forward, find_nothing)), print(e.forward));
}

}  // namespace thunder::passes
