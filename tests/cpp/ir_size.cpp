#include "check.h"
#include "ir/argument.h"
#include "ir/builder.h"
#include "ir/printer.h"
#include "ir/size.h"
#include "ir/trace_sizes.h"

namespace thunder::ir {
namespace {

const Dim kRows = Dim::symbol(0, 6);
const Dim kColumns = Dim::symbol(1, 64);
constexpr std::int64_t kValues[] = {5, 12};

}  // namespace

TEST(numbers_stay_numbers) {
  const Dim product = Dim(3) * Dim(4) + 1;
  CHECK(product.is_concrete());
  CHECK_EQ(product.hint, 13);
  CHECK((kRows - kRows) == Dim(0));
  CHECK((kRows * 0) == Dim(0));
}

TEST(equal_expressions_are_equal_however_they_were_made) {
  CHECK((kRows + kColumns) * 2 == kColumns * 2 + kRows + kRows);
  CHECK((kRows + 1) * (kRows - 1) == kRows * kRows - 1);
  CHECK(kRows * kColumns != kRows * kRows);
  CHECK(Dim::symbol(0, 6) == kRows);
}

TEST(an_expression_prints_as_python) {
  CHECK_EQ(to_string(kRows * kColumns * 4 - kRows + 2), "4*s0*s1 - s0 + 2");
  CHECK_EQ(to_string(floor_divide(kRows + 1, 2)), "((s0 + 1)//2)");
  CHECK_EQ(to_string(smaller(kRows, kColumns)), "min(s0, s1)");
}

TEST(an_expression_has_the_value_of_its_symbols) {
  CHECK_EQ((kRows * kColumns - 1).hint, 383);
  CHECK_EQ(evaluate(kRows * kColumns - 1, kValues), 59);
  CHECK_EQ(evaluate(floor_divide(Dim(0) - kRows, 2), kValues), -3);
  CHECK_EQ(evaluate(larger(kRows, kColumns), kValues), 12);
}

TEST(a_quotient_is_exact_or_none) {
  CHECK(exact_quotient(kRows * kColumns * 6, kColumns * 2) == kRows * 3);
  CHECK(exact_quotient(kRows * kColumns + kColumns, kRows + 1) == kColumns);
  CHECK(!exact_quotient(kRows * 3, 2));
  CHECK(!exact_quotient(kColumns, 64));
  CHECK(!exact_quotient(kRows + 1, kColumns));
  CHECK_EQ(exact_quotient(kRows * kColumns, kRows)->hint, 64);
}

TEST(a_floor_division_that_is_exact_is_a_quotient) {
  CHECK(floor_divide(kRows * 4, 2) == kRows * 2);
  CHECK(floor_divide(kRows * 4, 8) != kRows);
}

TEST(a_square_root_is_rounded_down_as_in_python) {
  CHECK_EQ(to_string(square_root(kRows + 1)), "int((s0 + 1)**0.5)");
  CHECK(square_root(kRows * kRows * kColumns * kColumns * 4) == kRows * kColumns * 2);
  CHECK(square_root(kRows * kRows * 2) != kRows);
  CHECK(square_root(35) == Dim(5));
  for (const std::int64_t root : {2, 3, 46341, 94906267}) {
    const std::int64_t at[] = {root * root, root * root - 1};
    CHECK_EQ(evaluate(square_root(kRows), at), root);
    CHECK_EQ(evaluate(square_root(kColumns), at), root - 1);
  }
  const Dim root = square_root(kRows);
  CHECK(rewrite(root, [](const Dim& part) { return part == kRows ? kColumns * kColumns : part; }) == kColumns);
  CHECK(least_value(square_root(kRows + 7)) == 3);
}

TEST(a_ratio_is_a_number_where_its_sizes_are) {
  CHECK(SizeRatio{.denominator = 8}.value() == 0.125);
  const SizeRatio unbiased{1, kRows, kRows, 1};
  CHECK(!unbiased.value());
  CHECK_EQ(unbiased.at(kValues), 1.25);
}

TEST(the_symbols_of_an_expression_are_sorted) {
  std::vector<std::uint32_t> symbols;
  add_symbols(floor_divide(kColumns, kRows) + kColumns, symbols);
  CHECK(symbols == (std::vector<std::uint32_t>{0, 1}));
  CHECK(symbol_of(kColumns) == 1U);
  CHECK(!symbol_of(kColumns + 1));
}

TEST(an_argument_of_a_number_is_an_integer) {
  CHECK(Argument(kRows - kRows + 3) == Argument(3));
  CHECK(Argument(kRows).is<Dim>());
  CHECK(has_symbols(Argument(ArgumentList{1, Argument(kRows)})));
}

TEST(a_trace_says_where_its_symbols_come_from) {
  static const Operator kView = parse_operator("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)");
  Trace trace("f", std::make_shared<TraceContext>());
  const ValueId x = trace.add_input(tensor_type(Dtype::kFloat32, {kRows, kColumns}), "x");
  const ArgumentList flat{Argument(kRows * kColumns)};
  trace.outputs = {add_call(trace, kView, {x, Argument(flat)}, tensor_type(Dtype::kFloat32, {kRows * kColumns}))};
  const std::string text = print(trace);
  CHECK(text.find("  s0 = x.shape[0]\n  s1 = x.shape[1]\n") != std::string::npos);
  CHECK(text.find("torch.ops.aten.view.default(x, [s0*s1])  # t1: \"cpu f32[s0*s1]\"") != std::string::npos);
  CHECK(symbols_of(trace) == (std::vector<std::uint32_t>{0, 1}));
  const Trace sized = at_sizes(trace, kValues);
  CHECK(symbols_of(sized).empty());
  CHECK(sized.tensor_type(ValueId{1})->sizes == (Dims{60}));
  CHECK(sized.symbols[0].arguments[1] == Argument(ArgumentList{60}));
}

}  // namespace thunder::ir
