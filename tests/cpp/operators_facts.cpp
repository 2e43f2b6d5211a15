#include "check.h"
#include "ir/builder.h"
#include "operators/facts.h"

namespace thunder::operators {
namespace {

using enum Fact;

bool has(std::string_view schema, Fact fact) { return has_fact(ir::parse_operator(schema), fact); }

}  // namespace

TEST(a_row_holds_for_all_overloads_or_for_one) {
  CHECK(has("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", kRaisesForStrides));
  CHECK(has("aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)", kRaisesForStrides));
  CHECK(has("aten::where(Tensor condition) -> Tensor[]", kShapeFollowsData));
  CHECK(!has("aten::where.self(Tensor condition, Tensor self, Tensor other) -> Tensor", kShapeFollowsData));
}

TEST(what_the_schema_says_needs_no_row) {
  constexpr const char* kStrided = "mine::strided(Tensor self, SymInt[] stride, SymInt? storage_offset) -> Tensor";
  CHECK(has(kStrided, kReadsStrides));
  CHECK(has("mine::put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate) -> Tensor", kWritesToIndices));
  CHECK(has("aten::linalg_inv(Tensor A) -> Tensor", kRaisesForData));
  CHECK(has("aten::exp(Tensor self) -> Tensor", kIsCheap));
}

TEST(facts_are_kept_and_added_to) {
  ir::Operator op = ir::parse_operator("aten::exp(Tensor self) -> Tensor");
  CHECK(has_fact(op, kIsCheap));
  add_facts(op, kReadsData);
  CHECK(has_fact(op, kReadsData));
  CHECK(has_fact(op, kIsCheap));
}

TEST(views_are_views_with_and_without_an_annotation) {
  CHECK(is_view(ir::parse_operator("aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor")));
  CHECK(is_view(ir::parse_operator("aten::t(Tensor(a) self) -> Tensor(a)")));
  CHECK(!is_view(ir::parse_operator("aten::exp(Tensor self) -> Tensor")));
}

TEST(functional_collectives_are_asynchronous_until_somebody_waits) {
  const auto start = facts_of(
      ir::parse_operator("_c10d_functional::all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor"));
  CHECK(start.has(kOrdered) && start.has(kAsynchronous) && !start.has(kWaits));
  const auto wait = facts_of(ir::parse_operator("_c10d_functional::wait_tensor(Tensor tensor) -> Tensor"));
  CHECK(wait.has(kWaits) && wait.has(kMayReturnArgument) && !wait.has(kOrdered));
  const auto at_once = facts_of(ir::parse_operator("c10d::barrier(Tensor tensor) -> Tensor"));
  CHECK(at_once.has(kOrdered) && !at_once.has(kAsynchronous));
}

TEST(matmuls_say_where_their_operands_are) {
  const Matmul* linear = find_matmul(ir::parse_operator("aten::linear(Tensor x, Tensor weight, Tensor? b) -> Tensor"));
  CHECK(linear != nullptr && linear->takes_transposed && linear->bias == 2U);
  CHECK(find_matmul(ir::parse_operator("aten::mm.out(Tensor self, Tensor mat2) -> Tensor")) == nullptr);
}

}  // namespace thunder::operators
