// Expressions of one element: what they say of a call, and what they are computed to.
#include <span>
#include <string>

#include "base/error.h"
#include "check.h"
#include "ir/builder.h"
#include "operators/elements.h"

using namespace thunder;
using operators::ElementBuilder;
using operators::ElementOp;

namespace {

/// Writes an expression as nested calls.
struct Writer {
  using Value = std::string;

  Value parameter(std::size_t i) { return "p" + std::to_string(i); }
  Value condition(std::size_t i) { return "c" + std::to_string(i); }
  Value number(double value) { return std::to_string(static_cast<int>(value)); }
  Value apply(ElementOp op, std::span<const Value> operands) {
    std::string text = std::to_string(static_cast<int>(op)) + "(";
    for (const Value& operand : operands) text += operand + " ";
    return text + ")";
  }
};

std::string call(ElementOp op, std::initializer_list<std::string> operands) {
  return Writer().apply(op, std::span(operands.begin(), operands.size()));
}

std::string written(const std::string& schema, const std::string& text, const ir::ArgumentList& arguments) {
  const ir::Operator op = ir::parse_operator(schema);
  const operators::ElementExpression expression = operators::parse_element_expression(text, op);
  Writer writer;
  return ElementBuilder(expression, arguments, writer).build().value_or("nothing");
}

const ir::Argument kTensor{ir::ValueId{0}};
const char* const kAdd = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor";

bool is_refused(const std::string& text) {
  try {
    (void)operators::parse_element_expression(text, ir::parse_operator(kAdd));
  } catch (const InternalError&) {
    return true;
  }
  return false;
}

}  // namespace

TEST(products_bind_more_strongly_than_sums) {
  CHECK_EQ(written(kAdd, "self - other * alpha + self", {kTensor, kTensor, 3}),
           call(ElementOp::kAdd, {call(ElementOp::kSubtract, {"p0", call(ElementOp::kMultiply, {"p1", "p2"})}), "p0"}));
}

TEST(factor_of_one_is_left_out) {
  CHECK_EQ(written(kAdd, "self + other * alpha", {kTensor, kTensor, 1}), call(ElementOp::kAdd, {"p0", "p1"}));
}

TEST(parameter_that_is_left_out_leaves_out_its_operation) {
  const char* const clamp = "aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor";
  const ir::ArgumentList arguments{kTensor, ir::None{}, 2};
  CHECK_EQ(written(clamp, "minimum(maximum(self, min), max)", arguments), call(ElementOp::kMinimum, {"p0", "p2"}));
}

TEST(choice_follows_numbers_and_strings_of_the_call) {
  const char* const gelu = "aten::gelu(Tensor self, *, str approximate='none') -> Tensor";
  const std::string text = "abs(self) if approximate == 'tanh' else sign(self)";
  CHECK_EQ(written(gelu, text, {kTensor, std::string("tanh")}), call(ElementOp::kAbs, {"p0"}));
  CHECK_EQ(written(gelu, text, {kTensor, std::string("none")}), call(ElementOp::kSign, {"p0"}));
  const char* const power = "aten::pow(Tensor self, Scalar exponent) -> Tensor";
  CHECK_EQ(written(power, "self if abs(exponent) < 0.5 else -self", {kTensor, -0.25}), std::string("p0"));
}

TEST(condition_of_a_selection_is_a_bool) {
  const char* const where = "aten::where(Tensor condition, Tensor self, Tensor other) -> Tensor";
  CHECK_EQ(written(where, "where(condition, self, other)", {kTensor, kTensor, kTensor}),
           call(ElementOp::kWhere, {"c0", "p1", "p2"}));
}

TEST(text_that_is_no_expression_is_refused) {
  for (const char* text :
       {"", "self +", "self other", "beta", "sine(self)", "maximum(self)", "(self", "self if alpha"}) {
    CHECK(is_refused(text));
  }
}

TEST(work_counts_functions_of_real_numbers) {
  const ir::Operator silu = ir::parse_operator("aten::silu(Tensor self) -> Tensor");
  const ir::Operator add = ir::parse_operator(kAdd);
  CHECK_EQ(operators::work_of(*operators::find_elements(silu), {kTensor}), 4.0);
  CHECK_EQ(operators::work_of(*operators::find_elements(add), {kTensor, kTensor, 2}), 1.0);
}
