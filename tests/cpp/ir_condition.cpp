#include "check.h"
#include "ir/builder.h"
#include "ir/condition.h"
#include "ir/layout.h"

namespace thunder::ir {
namespace {

using Kind = Condition::Kind;

const Dim kRows = Dim::symbol(0, 12);
const Dim kColumns = Dim::symbol(1, 48);
const SizeQuestions kQuestions({12, 48});

TensorType strided(Dims sizes, Dims strides) {
  TensorType type = std::get<TensorType>(*tensor_type(Dtype::kFloat32, std::move(sizes)));
  type.strides = std::move(strides);
  return type;
}

}  // namespace

TEST(a_condition_holds_for_some_sizes_and_prints_as_python) {
  const Condition divisible{Kind::kDivisible, kRows * kColumns, kRows + 1};
  CHECK_EQ(to_string(divisible), "(s0*s1) % (s0 + 1) == 0");
  constexpr std::int64_t kDivided[] = {3, 8};
  constexpr std::int64_t kWithRest[] = {3, 9};
  CHECK(holds(divisible, kDivided));
  CHECK(!holds(divisible, kWithRest));
  CHECK(!holds({Kind::kEqual, kRows, kColumns}, kDivided));
  CHECK(holds({Kind::kAtMost, kRows, kColumns}, kDivided));
  CHECK(!holds({Kind::kDivisible, kRows, kRows - 3}, kDivided));  // by zero
  CHECK(!holds({Kind::kAtMost, 2, floor_divide(kColumns, kRows - 3)}, kDivided));
}

TEST(a_symbol_that_a_number_divides_stands_for_the_quotient) {
  const Condition condition{Kind::kDivisible, kColumns, 4};
  CHECK(is_in_sizes(condition));
  CHECK(simplify(kColumns, condition) == kColumns * 4);
  CHECK(simplify(floor_divide(kColumns, 4), condition) == kColumns);
  CHECK(simplify(floor_divide(kColumns, 8) + kRows, condition) == floor_divide(kColumns * 4, 8) + kRows);
  CHECK_EQ(simplify(kColumns, condition).hint, 48);
  const Condition once{Kind::kDivisible, kColumns, 48};
  CHECK(!is_in_sizes(once));
  CHECK(simplify(kColumns, once) == kColumns);
  CHECK(simplify(floor_divide(kColumns, 48) * 48, once) == kColumns);
}

TEST(a_multiple_of_an_exact_quotient_is_the_dividend) {
  const Condition condition{Kind::kDivisible, kRows * kColumns, 4};
  const Dim quotient = floor_divide(kRows * kColumns, 4);
  CHECK(simplify(quotient * 4, condition) == kRows * kColumns);
  CHECK(simplify(quotient * 8 * kRows + 1, condition) == kRows * kRows * kColumns * 2 + 1);
  CHECK(simplify(quotient * 2, condition) == quotient * 2);
  CHECK_EQ(simplify(quotient * 4, condition).hint, 576);
}

TEST(the_smaller_and_the_larger_of_two_are_known_where_one_is_at_most_the_other) {
  const Condition condition{Kind::kAtMost, kColumns, 64};
  CHECK(simplify(smaller(64, kColumns) * kRows, condition) == kColumns * kRows);
  CHECK(simplify(larger(kColumns, 64), condition) == Dim(64));
  CHECK(simplify(floor_divide(larger(kColumns, 64), 16), condition) == Dim(4));
}

TEST(of_equal_dimensions_one_symbol_stands_for_both) {
  CHECK(simplify(kColumns * 2 + kRows, {Kind::kEqual, kRows, kColumns}) == kRows * 3);
  CHECK(simplify(kColumns * 2, {Kind::kEqual, kColumns, kRows * 4}) == kRows * 8);
  CHECK(simplify(kColumns, {Kind::kEqual, 48, kColumns}) == Dim(48));
  const Dim padded = floor_divide(kColumns + 7, 8) * 8;
  for (const Condition& equal :
       {Condition{Kind::kEqual, kColumns, padded}, Condition{Kind::kEqual, padded, kColumns}}) {
    CHECK(simplify(kColumns, equal) == kColumns);
    CHECK(simplify(padded, equal) == kColumns);
  }
  CHECK(is_in_sizes({Kind::kEqual, kRows, kColumns}));
  CHECK(!is_in_sizes({Kind::kEqual, kRows * kRows, kColumns * 3}));
  CHECK(!is_in_sizes({Kind::kAtMost, kRows, kColumns}));
}

TEST(equality_is_answered_with_yes_no_or_conditions) {
  CHECK(kQuestions.are_equal(kRows + kRows, kRows * 2).is_yes());
  CHECK(!kQuestions.are_equal(kRows, kColumns).is_possible);
  const Answer equal = kQuestions.are_equal(kRows * 4, kColumns);
  CHECK(equal.conditions == (std::vector<Condition>{{Kind::kEqual, kRows * 4, kColumns}}));
  const Answer divided = kQuestions.are_equal(floor_divide(kColumns, 4) * 4, kColumns);
  CHECK(divided.conditions == (std::vector<Condition>{{Kind::kDivisible, kColumns, 4}}));
  const Answer bounded = kQuestions.are_equal(smaller(64, kColumns), kColumns);
  CHECK(bounded.conditions == (std::vector<Condition>{{Kind::kAtMost, kColumns, 64}}));
}

TEST(only_conditions_that_decide_are_asked_for) {
  const Dim rest = floor_divide(kColumns, 4);
  const Answer answer = kQuestions.are_equal(rest + smaller(kRows, 16), rest + kRows);
  CHECK(answer.conditions == (std::vector<Condition>{{Kind::kAtMost, kRows, 16}}));
}

TEST(a_layout_may_hold_under_conditions) {
  const TensorType sliced = strided({kRows, smaller(kColumns, 64)}, {kColumns, 1});
  CHECK(!is_contiguous(sliced));
  const Answer answer = kQuestions.is_contiguous(sliced);
  CHECK(answer.is_possible);
  CHECK(answer.conditions == (std::vector<Condition>{{Kind::kAtMost, kColumns, 64}}));
  CHECK(kQuestions.is_dense(strided({kRows, kColumns}, {1, kRows})).is_yes());
  CHECK(!kQuestions.is_dense(strided({kRows, kColumns}, {kColumns * 2, 1})).is_possible);
}

}  // namespace thunder::ir
