#include "check.h"
#include "tracer/operators.h"
#include "tracer/trace_builder.h"

namespace {

using thunder::ir::ValueId;
using thunder::tracer::TraceBuilder;

struct Building {
  TraceBuilder builder{thunder::ir::Trace("computation", std::make_shared<thunder::ir::TraceContext>()),
                       thunder::tracer::RecordingHost::whole_program()};

  static thunder::ir::TypePtr type() {
    thunder::ir::TensorType tensor;
    tensor.sizes = {thunder::ir::Dim(2)};
    tensor.strides = {thunder::ir::Dim(1)};
    return thunder::ir::make_type(std::move(tensor));
  }

  /// A call of `name` on `argument`, whose result is the second.
  std::pair<thunder::ir::BoundSymbol, ValueId> call(const char* name, ValueId argument) {
    thunder::ir::BoundSymbol symbol;
    symbol.op = thunder::tracer::find_operator(name, "");
    symbol.arguments = {thunder::ir::Argument(argument)};
    const ValueId result = builder.trace().add_value(type());
    symbol.results.emplace_back(result);
    return {std::move(symbol), result};
  }

  ValueId add(const char* name, ValueId argument) {
    auto [symbol, result] = call(name, argument);
    builder.add_here(std::move(symbol));
    return result;
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& symbol : builder.trace().symbols) found.push_back(symbol.op->name);
    return found;
  }
};

using Names = std::vector<std::string>;

}  // namespace

TEST(a_symbol_is_replaced_when_the_trace_settles) {
  Building in;
  const ValueId x = in.builder.trace().add_input(Building::type());
  const ValueId first = in.add("aten::neg", x);
  in.add("aten::cos", first);
  in.builder.replace(first, {in.call("aten::exp", x).first, in.call("aten::sin", x).first});
  CHECK_EQ(in.names(), (Names{"aten::neg", "aten::cos"}));
  const std::size_t edits = in.builder.edits();
  in.builder.settle();
  CHECK_EQ(in.names(), (Names{"aten::exp", "aten::sin", "aten::cos"}));
  CHECK_EQ(in.builder.edits(), edits + 1);
}

TEST(a_mark_moves_with_what_lies_behind_it) {
  Building in;
  const ValueId x = in.builder.trace().add_input(Building::type());
  const ValueId first = in.add("aten::neg", x);
  const TraceBuilder::Mark inside(in.builder);
  in.add("aten::cos", first);
  const TraceBuilder::Mark end(in.builder);
  in.builder.replace(first, {in.call("aten::exp", x).first, in.call("aten::sin", x).first});
  in.builder.settle();
  CHECK_EQ(inside.position(), std::size_t{2});
  CHECK_EQ(end.position(), std::size_t{3});
}

TEST(a_cut_leaves_constants) {
  Building in;
  const ValueId x = in.builder.trace().add_input(Building::type());
  in.add("aten::neg", x);
  in.add("aten::cos", x);
  thunder::ir::BoundSymbol constant;
  constant.op = thunder::tracer::tensor_constant_operator();
  constant.results.emplace_back(in.builder.trace().add_value(Building::type()));
  in.builder.add(std::move(constant));
  CHECK_EQ(in.builder.cut(1).size(), std::size_t{1});
  CHECK_EQ(in.names(), (Names{"aten::neg", "prims::tensor_constant"}));
}

TEST(another_value_takes_the_place_of_a_result) {
  Building in;
  const ValueId x = in.builder.trace().add_input(Building::type());
  const ValueId result = in.add("aten::neg", x);
  const ValueId made = in.builder.rename_result(in.builder.maker_of(result), result);
  CHECK_EQ(in.builder.maker_of(made), std::size_t{0});
  CHECK_EQ(in.builder.maker_of(result), std::size_t{1});
}

TEST(symbols_have_the_line_that_is_replayed) {
  Building in;
  const ValueId x = in.builder.trace().add_input(Building::type());
  const std::string file = "program.py";
  const thunder::ir::SourceLocation line{&file, 7};
  in.builder.replayed_location = &line;
  in.add("aten::neg", x);
  in.builder.replayed_location = nullptr;
  in.add("aten::cos", x);
  CHECK_EQ(in.builder.trace().symbols[0].location.line, 7);
  CHECK(in.builder.trace().symbols[1].location.file == nullptr);
}
