// Work between an asynchronous operation and its wait hides its time: from the recorded trace to what executors get, in
// each pass, in fusions and in buffer assignment, nothing of it moves out.
#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "compile/compiler.h"
#include "compile/execution.h"
#include "compile/executor_list.h"
#include "compile/pipeline.h"
#include "fusion/buffer_assignment.h"
#include "fusion/partition.h"
#include "ir/builder.h"
#include "ir/verifier.h"
#include "operators/facts.h"
#include "traced_operator.h"

namespace thunder::compile {
namespace {

using check::find;
using ir::Argument;
using ir::ArgumentList;
using ir::Trace;
using ir::ValueId;

/// Each symbol has a line of its own, which stays its name whatever passes make of it.
struct Example {
  explicit Example(ir::TraceKind kind) : trace(kind, std::make_shared<ir::TraceContext>()) {}

  ValueId call(std::int32_t line, const ir::Operator& op, ArgumentList arguments, const ir::TypePtr& type) {
    const ValueId value = ir::add_call(trace, op, std::move(arguments), type);
    trace.symbols.back().location = {trace.context()->intern("model.py"), line};
    return value;
  }
  ValueId unary(std::int32_t line, const char* name, ValueId x) { return call(line, find(name), {x}, like(x)); }
  ValueId binary(std::int32_t line, const char* name, ValueId x, ValueId y) {
    ArgumentList arguments{x, y};
    if (std::string_view(name) == "aten::add") arguments.emplace_back(1);
    return call(line, find(name, "Tensor"), std::move(arguments), like(y));
  }
  ValueId reduce(std::int32_t line, ValueId x) {
    return call(line, find("_c10d_functional::all_reduce"), {x, "sum", "0"}, large);
  }
  ValueId wait(std::int32_t line, ValueId x) { return call(line, find("_c10d_functional::wait_tensor"), {x}, large); }
  [[nodiscard]] ir::TypePtr like(ValueId x) const { return trace.value(x).type; }

  Trace trace;
  ir::TypePtr large = ir::tensor_type(ir::Dtype::kFloat32, {64, 1024});
  ir::TypePtr twice = ir::tensor_type(ir::Dtype::kFloat32, {128, 1024});
};

constexpr std::int32_t kStart = 10, kWait = 20, kSecondStart = 30, kSecondWait = 40, kLast = 50;

/// Two collectives that overlap with work, between work that fuses with it. The lines of a part lie between those of
/// its collectives.
Trace example(ir::TraceKind kind, bool requires_grad) {
  Example e(kind);
  ir::TensorType differentiated = std::get<ir::TensorType>(*e.large);
  differentiated.requires_grad = requires_grad;
  const ValueId x = e.trace.add_input(e.large, "x");
  const ValueId y = e.trace.add_input(ir::make_type(differentiated), "y");
  const ValueId z = e.trace.add_input(e.large, "z");
  const ValueId before = e.unary(kStart - 2, "aten::exp", x);
  const ValueId wanted_later = e.unary(kStart - 1, "aten::tanh", y);
  const ValueId started = e.reduce(kStart, before);
  const ValueId hidden = e.unary(kStart + 1, "aten::tanh", e.unary(kStart + 2, "aten::exp", wanted_later));
  const ValueId cheap = e.unary(kStart + 3, "aten::neg", x);  // one operation on a value that is in memory anyway
  const ValueId part = e.unary(kStart + 7, "aten::cos", hidden);
  ir::TensorType twice = std::get<ir::TensorType>(*e.twice);
  twice.requires_grad = requires_grad;
  const ValueId joined = e.call(kStart + 4, find("aten::cat"), {ArgumentList{part, x}, 0}, ir::make_type(twice));
  const ValueId detached = e.unary(kStart + 5, "aten::sin", e.unary(kStart + 6, "aten::exp", x));
  const ValueId waited = e.wait(kWait, started);
  const ValueId sum = e.binary(kWait + 1, "aten::add", waited, e.binary(kWait + 2, "aten::mul", cheap, hidden));
  const ValueId between = e.binary(kWait + 3, "aten::mul", waited, detached);
  const ValueId second = e.reduce(kSecondStart, between);
  const ValueId more = e.binary(kSecondStart + 1, "aten::mul", waited, e.unary(kSecondStart + 2, "aten::sigmoid", sum));
  const ValueId written = e.unary(kSecondStart + 3, "aten::cos", e.unary(kSecondStart + 4, "aten::exp", detached));
  const ValueId last = e.wait(kSecondWait, second);
  const ValueId result =
      e.binary(kSecondWait + 1, "aten::mul", last, e.binary(kSecondWait + 2, "aten::add", more, sum));
  e.trace.outputs = {result, joined, e.binary(kSecondWait + 3, "aten::add", cheap, sum)};
  ir::add_symbol(e.trace, find("aten::copy_"), {z, written, false}, {Argument(ir::None{})});
  e.trace.symbols.back().location = {e.trace.context()->intern("model.py"), kLast};
  return std::move(e.trace);
}

/// The operations that run, with blocks opened.
void add_operations(const ir::BoundSymbol& symbol, std::vector<const ir::BoundSymbol*>& operations) {
  if (symbol.op->style == ir::CallStyle::kTorchOperator) operations.push_back(&symbol);
  for (const ir::BoundSymbol& nested : symbol.nested) add_operations(nested, operations);
}

/// Work of a part that came out of it: moved across a collective. Collectives in another order.
std::string mistakes_in(const Trace& trace, const std::vector<std::int32_t>& parts) {
  ir::verify(trace, "test");
  std::vector<const ir::BoundSymbol*> operations;
  for (const ir::BoundSymbol& symbol : trace.symbols) add_operations(symbol, operations);
  std::string found;
  std::vector<std::int32_t> collectives;
  for (const ir::BoundSymbol* operation : operations) {
    const std::int32_t line = operation->location.line;
    if (operators::communicates(*operation->op)) {
      collectives.push_back(line);
      continue;
    }
    const bool has_part = std::ranges::find(parts, line / 10 * 10) != parts.end() && line % 10 < 8;
    if (!has_part) continue;  // before the first, or the write to the caller's memory
    const std::int32_t part = collectives.empty() ? 0 : collectives.back();
    if (part == line / 10 * 10) continue;
    found += " line " + std::to_string(line) + " runs behind " + std::to_string(part);
  }
  if (collectives != parts) found += " collectives are not in order";
  return found;
}

const std::vector<std::int32_t> kParts{kStart, kWait, kSecondStart, kSecondWait};

}  // namespace

TEST(collectives_stay_where_they_are_on_the_whole_way) {
  for (const bool requires_grad : {false, true}) {
    const Trace trace = example(ir::TraceKind::kComputation, requires_grad);
    const auto compiled = compile(trace, {.verify = true});
    bool has_fusions = false;
    for (const Trace& stage : compiled->forward_traces()) {
      CHECK_EQ(mistakes_in(stage, kParts), "");
      has_fusions = has_fusions || std::ranges::any_of(stage.symbols, [](const ir::BoundSymbol& symbol) {
                      return symbol.nested.size() > 1;
                    });
    }
    CHECK(has_fusions);
  }
}

TEST(each_pass_leaves_collectives_where_they_are) {
  for (const auto kind : {ir::TraceKind::kForward, ir::TraceKind::kBackward}) {
    const Trace trace = example(kind, false);
    for (const passes::Pass& pass : trace_passes()) {
      const std::string mistakes = mistakes_in(pass.run(trace, &find_operator), kParts);
      CHECK_EQ(pass.name + mistakes, pass.name);
    }
  }
}

TEST(fusions_and_what_follows_leave_collectives_where_they_are) {
  const auto fused = run_built_in_fusion_passes(example(ir::TraceKind::kForward, false), default_executors());
  CHECK(fused.has_value());
  CHECK_EQ(mistakes_in(*fused, kParts), "");
  for (const passes::Pass& pass : trace_passes()) {
    const Trace made = pass.run(*fused, &find_operator);
    CHECK_EQ(pass.name + mistakes_in(made, kParts), pass.name);
    const auto is_buffer = [](const ir::BoundSymbol& symbol) { return symbol.op->name == "aten::empty_strided"; };
    if (std::string_view(pass.name) == fusion::kBufferAssignment) CHECK(std::ranges::any_of(made.symbols, is_buffer));
  }
}

}  // namespace thunder::compile
