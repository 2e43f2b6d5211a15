#include <ATen/ATen.h>

#include "check.h"
#include "compile/execution.h"
#include "executors/aten/executor.h"
#include "ir/builder.h"
#include "ir/symbol_values.h"
#include "ir/verifier.h"
#include "traced_operator.h"

namespace thunder::compile {
namespace {

using check::find;
using executors::Executor;

bool claims_nothing(const Executor&, const ir::BoundSymbol&, const ir::Trace&) { return false; }
void lowers_nothing(const Executor&, const ir::BoundSymbol&, const ir::Trace&, runtime::ProgramBuilder&) {}

bool is(const ir::BoundSymbol& symbol, const char* name) { return symbol.op->name == name; }

/// A trace of the symbol's value: each of `names` applied to what the one before gave.
ir::Trace chain(const ir::BoundSymbol& symbol, const ir::Trace& trace, std::initializer_list<const char*> names) {
  ir::Trace made("chain", trace.context());
  const ir::TypePtr type = trace.value(ir::distinct_values(symbol.arguments).at(0)).type;
  ir::ValueId value = made.add_input(type);
  for (const char* name : names) value = ir::add_call(made, find(name), {value}, type);
  made.outputs = {value};
  return made;
}

/// sin -> sin, cos: replaces what it puts there itself.
const Executor kSines{"sines", &claims_nothing, &lowers_nothing,
                      [](const Executor&, const ir::BoundSymbol& s, const ir::Trace&) { return is(s, "aten::sin"); },
                      [](const Executor&, const ir::BoundSymbol& s, const ir::Trace& t) {
                        return chain(s, t, {"aten::sin", "aten::cos"});
                      }};
/// cos -> exp
const Executor kCosines{
    "cosines", &claims_nothing, &lowers_nothing,
    [](const Executor&, const ir::BoundSymbol& s, const ir::Trace&) { return is(s, "aten::cos"); },
    [](const Executor&, const ir::BoundSymbol& s, const ir::Trace& t) { return chain(s, t, {"aten::exp"}); }};

ir::Trace program() {
  ir::Trace trace("computation", std::make_shared<ir::TraceContext>());
  const ir::TypePtr type = ir::tensor_type(ir::Dtype::kFloat32, {3});
  const ir::ValueId x = trace.add_input(type, "x");
  trace.outputs = {ir::add_call(trace, find("aten::sin"), {x}, type)};
  trace.symbols.back().location = {trace.context()->intern("model.py"), 7};
  return trace;
}

std::vector<std::string> names(const ir::Trace& trace) {
  std::vector<std::string> result;
  for (const ir::BoundSymbol& symbol : trace.symbols) result.push_back(symbol.op->name);
  return result;
}

using Names = std::vector<std::string>;

}  // namespace

TEST(expansion_is_seen_by_executors_behind) {
  const ir::Trace made = transform_for_execution(program(), with_fallback({&kSines, &kCosines}));
  ir::verify(made, "test");
  CHECK(names(made) == (Names{"aten::sin", "aten::exp"}));
  CHECK_EQ(made.symbols[1].location.line, 7);
  CHECK_EQ(made.symbols[0].comment, std::string("executor sines"));
}

TEST(expansion_is_not_seen_by_executors_in_front) {
  CHECK(names(transform_for_execution(program(), with_fallback({&kCosines, &kSines}))) ==
        (Names{"aten::sin", "aten::cos"}));
}

TEST(executor_that_claims_comes_before_those_that_serve_behind_it) {
  CHECK(names(transform_for_execution(program(), {&executors::aten::kExecutor, &kSines})) == Names{"aten::sin"});
  CHECK(serving_executor(program().symbols[0], program(), {&executors::aten::kExecutor, &kSines}) == nullptr);
  CHECK(serving_executor(program().symbols[0], program(), {&kCosines, &kSines}) == &kSines);
}

TEST(lowered_program_runs_what_executors_put_there) {
  const runtime::Program lowered = lower_directly(program(), with_fallback({&kSines, &kCosines}));
  const at::Tensor x = at::randn({3});
  std::vector<at::Tensor> inputs{x};
  std::vector<at::Tensor> outputs(1);
  lowered.run(std::span(inputs), std::span(outputs));
  CHECK(at::equal(outputs[0], x.sin().exp()));
}

TEST(registered_executor_is_found_by_its_name_and_replaces_the_one_before) {
  register_executor(kSines);
  CHECK(find_executor("sines") == &kSines);
  set_default_executors({&kSines, find_executor("aten")});
  static const Executor kOther{"sines", &claims_nothing, &lowers_nothing};
  register_executor(kOther);
  CHECK(find_executor("sines") == &kOther);
  CHECK(default_executors().front() == &kOther);
  deregister_executor("sines");
  CHECK_THROWS(find_executor("sines"), UserError);
  CHECK(default_executors() == Executors{&executors::aten::kExecutor});
  static const Executor kNamesake{"aten", &claims_nothing, &lowers_nothing};
  CHECK_THROWS(register_executor(kNamesake), UserError);
}

}  // namespace thunder::compile
