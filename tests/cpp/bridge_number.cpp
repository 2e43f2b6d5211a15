#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "bridge/number.h"
#include "check.h"

using thunder::bridge::compute_number;
using thunder::bridge::same_number;

namespace {

c10::Scalar integer(std::int64_t value) { return {value}; }

/// Whether Python's `left operation right` is `expected`, of the same type and to the bit.
bool gives(const char* operation, const c10::Scalar& left, const c10::Scalar& right, const c10::Scalar& expected) {
  const auto result = compute_number(operation, left, right);
  return result && same_number(*result, expected);
}

}  // namespace

TEST(integers_are_computed_as_python_does) {
  CHECK(gives("+", integer(2), integer(3), integer(5)));
  CHECK(gives("//", integer(-7), integer(2), integer(-4)));
  CHECK(gives("%", integer(-7), integer(2), integer(1)));
  CHECK(gives("%", integer(7), integer(-2), integer(-1)));
  CHECK(gives("/", integer(7), integer(2), 3.5));
  CHECK(gives("<", integer(1), integer(2), true));
  CHECK(gives("float", integer(3), integer(3), 3.0));
}

TEST(floats_are_computed_as_python_does) {
  CHECK(gives("//", -7.5, 2.0, -4.0));
  CHECK(gives("%", -7.5, 2.0, 0.5));
  CHECK(gives("%", 1.0, -1.0, -0.0));
  CHECK(gives("**", 2.0, -1.0, 0.5));
  CHECK(gives("int", -2.7, -2.7, integer(-2)));
  CHECK(gives("*", 0.5, integer(3), 1.5));
}

TEST(what_python_raises_for_gives_nothing) {
  CHECK(!compute_number("/", 1.0, 0.0));
  CHECK(!compute_number("//", integer(1), integer(0)));
  CHECK(!compute_number("**", 0.0, -1.0));
  CHECK(!compute_number("**", 1e300, 2.0));
  CHECK(!compute_number("int", std::nan(""), 0.0));
}

TEST(numbers_are_checked_for_what_dtypes_can_hold) {
  CHECK(gives("int8", integer(127), integer(0), integer(127)));
  CHECK(!compute_number("int8", integer(128), integer(0)));
  CHECK(gives("uint8", integer(-1), integer(0), integer(-1)));  // as PyTorch, which takes it for 255
  CHECK(!compute_number("float16", 70000.0, 0.0));
  CHECK(gives("float32", std::numeric_limits<double>::infinity(), 0.0, std::numeric_limits<double>::infinity()));
  CHECK(!compute_number("int64", std::nan(""), 0.0));
  CHECK(!compute_number("natural", integer(-1), integer(0)));
  CHECK(thunder::bridge::can_hold_all(at::kFloat, at::kLong));
  CHECK(!thunder::bridge::can_hold_all(at::kHalf, at::kLong));
  CHECK(!thunder::bridge::can_hold_all(at::kLong, at::kFloat));
}

TEST(results_that_no_scalar_holds_give_nothing) {
  const c10::Scalar largest = integer(std::numeric_limits<std::int64_t>::max());
  CHECK(!compute_number("+", largest, integer(1)));
  CHECK(!compute_number("*", largest, integer(2)));
  CHECK(!compute_number("**", -2.0, 0.5));
  // Doubles hold neither operand exactly, Python divides exactly.
  CHECK(!compute_number("/", largest, integer(3)));
}

TEST(same_numbers_are_of_one_kind_and_equal_to_the_bit) {
  CHECK(!same_number(integer(1), 1.0));
  CHECK(!same_number(integer(1), true));
  CHECK(!same_number(0.0, -0.0));
  CHECK(same_number(std::nan(""), std::nan("")));
}
