#include "executors/callback/callback_executor.h"

#include <ATen/core/jit_type.h>

#include <mutex>
#include <utility>

#include "executors/api/lowering.h"
#include "executors/api/operands.h"
#include "ir/builder.h"
#include "ir/symbol_values.h"

namespace thunder::executors::callback {
namespace {

/// The function that an instruction calls, and how.
struct Bound {
  Call call;
  Function function;
  CallSite site;
};

void run(const void* state, std::vector<c10::IValue>& stack) {
  const Bound& bound = *static_cast<const Bound*>(state);
  const ResultCheck check(bound.site, stack);
  bound.call(bound.function.get(), bound.site, stack);
  check.apply(stack);
}

CallSite make_site(std::string executor, const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  CallSite site{std::move(executor),
                printed_name(*symbol.op),
                static_cast<const c10::OperatorHandle*>(symbol.op->handle),
                {},
                location_of(symbol)};
  for (const ir::ValueId id : ir::flat_results(symbol)) {
    site.results.push_back(id == ir::kNoValue ? nullptr : trace.value(id).type);
  }
  return site;
}

c10::TypePtr parameter_type(const CallSite& site, std::size_t i) {
  return site.op == nullptr ? c10::ListType::ofTensors() : site.op->schema().arguments().at(i).real_type();
}

}  // namespace

const ir::Operator* fusion_operator() {
  static const ir::Operator* const kRow = new ir::Operator(
      ir::parse_operator("prims::fusion(Any function, Tensor[] tensors) -> Tensor[]", ir::CallStyle::kPrimitive));
  return kRow;
}

std::string printed_name(const ir::Operator& op) {
  std::string name = op.name;
  if (const std::size_t colons = name.find("::"); colons != std::string::npos) name.replace(colons, 2, ".");
  if (op.style != ir::CallStyle::kTorchOperator) return name;
  return name + "." + (op.overload.empty() ? "default" : op.overload);
}

CallbackExecutor::CallbackExecutor(std::string name, Call call)
    : name_(std::move(name)),
      call_(call),
      row_{name_.c_str(), &claim, &lower, &replaces, &expand, &fuse, nullptr, nullptr, this} {}

CallbackExecutor& CallbackExecutor::make(std::string name, Call call) {
  return *new CallbackExecutor(std::move(name), call);
}

void CallbackExecutor::add_operator(const ir::Operator* op, Function function) {
  const std::scoped_lock lock(mutex_);
  operators_.insert_or_assign(op, std::move(function));
}

void CallbackExecutor::add_implementation(const ir::Operator* operation, Implementation implementation) {
  const std::scoped_lock lock(mutex_);
  implementations_.insert_or_assign(operation, std::move(implementation));
}

void CallbackExecutor::set_fusion_pass(FusionPass pass) {
  const std::scoped_lock lock(mutex_);
  fusion_pass_ = std::move(pass);
}

Function CallbackExecutor::find_function(const ir::BoundSymbol& symbol, const ir::Trace& trace) const {
  if (symbol.op == fusion_operator()) {
    const auto function = std::get<ir::ObjectConstant>(symbol.arguments[0].content);
    return trace.context()->owner_of(function, ir::ObjectKind::kPythonObject);
  }
  const std::shared_lock lock(mutex_);
  const auto found = operators_.find(symbol.op);
  return found == operators_.end() ? nullptr : found->second;
}

std::optional<Implementation> CallbackExecutor::find_implementation(const ir::Operator* operation) const {
  const std::shared_lock lock(mutex_);
  const auto found = implementations_.find(operation);
  return found == implementations_.end() ? std::nullopt : std::make_optional(found->second);
}

bool CallbackExecutor::claim(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  return of(self).find_function(symbol, trace) != nullptr;
}

void CallbackExecutor::lower(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace,
                             runtime::ProgramBuilder& builder) {
  const CallbackExecutor& executor = of(self);
  auto bound = std::make_shared<Bound>(
      Bound{executor.call_, executor.find_function(symbol, trace), make_site(executor.name_, symbol, trace)});
  std::vector<runtime::Operand> operands;
  for (std::size_t i = symbol.op == fusion_operator() ? 1 : 0; i < symbol.arguments.size(); ++i) {
    operands.push_back(operand_of(symbol.arguments[i], parameter_type(bound->site, i), trace));
  }
  std::string name = bound->site.operation;
  builder.call(std::move(name), &run, std::move(bound), std::move(operands), result_slots(symbol), location_of(symbol));
}

bool CallbackExecutor::replaces(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const auto implementation = of(self).find_implementation(symbol.op);
  return implementation && (!implementation->checker || implementation->checker(symbol, trace));
}

ir::Trace CallbackExecutor::expand(const Executor& self, const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  return of(self).find_implementation(symbol.op)->expand(symbol, trace);
}

std::optional<ir::Trace> CallbackExecutor::fuse(const Executor& self, const ir::Trace& trace) {
  const CallbackExecutor& executor = of(self);
  FusionPass pass;
  {
    const std::shared_lock lock(executor.mutex_);
    pass = executor.fusion_pass_;
  }
  return pass ? pass(trace) : std::nullopt;
}

}  // namespace thunder::executors::callback
