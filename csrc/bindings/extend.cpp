// Executors made in Python: `thunder.extend` describes them, callback executors are what they become.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <list>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "bindings/python_values.h"
#include "bridge/convert.h"
#include "compile/execution.h"
#include "compile/executor_list.h"
#include "dispatch/errors.h"
#include "dispatch/options.h"
#include "dispatch/python_transform.h"
#include "dispatch/trace_object.h"
#include "executors/callback/callback_executor.h"
#include "interpreter/shared_object.h"
#include "ir/symbol_values.h"
#include "tracer/evaluate.h"
#include "tracer/operators.h"
#include "transforms/claimed.h"
#include "transforms/replay.h"
#include "transforms/rule_plan.h"

namespace thunder::bindings {
namespace {

using executors::callback::CallbackExecutor;
using executors::callback::CallSite;

python::handle function_in(const std::shared_ptr<const void>& owner) {
  return static_cast<PyObject*>(const_cast<void*>(owner.get()));
}

std::shared_ptr<void> share(const python::object& object) { return interpreter::share_object(object.ptr()); }

CallbackExecutor& unwrap(const python::capsule& capsule) {
  const auto* row =
      static_cast<const executors::Executor*>(PyCapsule_GetPointer(capsule.ptr(), dispatch::kExecutorCapsule));
  if (row == nullptr) throw python::error_already_set();
  return *const_cast<CallbackExecutor*>(static_cast<const CallbackExecutor*>(row->state));
}

const ir::Operator* find_operator(const std::string& name, const std::string& overload) {
  const ir::Operator* op = tracer::find_operator(name, overload);
  if (op == nullptr) {
    throw UserError(ErrorKind::kValue, "expected an operator of PyTorch's dispatcher, got " + name + "." + overload);
  }
  return op;
}

// --- what programs call

/// The exception of a kernel crosses C++ (and threads, in a backward) as PyTorch's own do.
[[noreturn]] void throw_from_kernel(const CallSite& site, python::error_already_set& error) {
  error.restore();
  add_context("\n" + site.message("raised this"));
  python_error carried;
  carried.persist();
  throw carried;
}

void call_python(const void* function, const CallSite& site, std::vector<c10::IValue>& stack) {
  const dispatch::HookScope hook;
  try {
    const python::handle callable = static_cast<PyObject*>(const_cast<void*>(function));
    python::object result;
    if (site.op != nullptr) {
      const PythonCall call = call_of(*site.op, stack);
      result = callable(*call.positional, **call.keywords);
    } else {
      python::tuple tensors = python::cast(stack.at(0).toTensorVector());
      result = callable(*tensors);
    }
    stack.clear();
    push_results(site.op, result, stack);
  } catch (python::error_already_set& error) {
    throw_from_kernel(site, error);
  } catch (const UserError& error) {
    throw UserError(error.kind(), site.message(error.what()));
  }
}

// --- what compilations ask

struct Description {
  std::string executor;
  std::string operation;

  [[nodiscard]] std::string of(const char* what, const ir::BoundSymbol& symbol) const {
    return "\n  in the " + std::string(what) + " of executor '" + executor + "' for " + operation +
           describe_location(symbol.location);
  }
};

bool ask_checker(const std::shared_ptr<const void>& checker, const Description& description,
                 const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const dispatch::HookScope hook;
  return or_pending(description.of("checker", symbol), [&] {
    const PythonCall call = call_of(symbol, trace, [&](ir::ValueId id) {
      const ir::Value& value = trace.value(id);
      return python::cast(TracedValue{id, value.type, value.name});
    });
    const python::object answer = function_in(checker)(*call.positional, **call.keywords);
    const int truth = PyObject_IsTrue(answer.ptr());
    if (truth < 0) throw python::error_already_set();
    return truth == 1;
  });
}

[[noreturn]] void refuse_result(const Description& description, const ir::BoundSymbol& symbol,
                                const std::string& what) {
  throw UserError(ErrorKind::kValue, "executor '" + description.executor + "': the implementation of " +
                                         description.operation + ": " + what + describe_location(symbol.location));
}

void require_result(const Description& description, const ir::BoundSymbol& symbol, const ir::TypePtr& expected,
                    const at::Tensor& got) {
  const auto& type = std::get<ir::TensorType>(*expected);
  const auto text = [](ir::TensorType tensor) {
    tensor.requires_grad = false;
    return ir::to_string(ir::Type(std::move(tensor)));
  };
  if (!got.defined()) refuse_result(description, symbol, "expected " + text(type) + ", got None");
  const ir::TensorType found = bridge::type_of(got);
  if (found.dtype != type.dtype || found.device != type.device ||
      bridge::hints(found.sizes) != bridge::hints(type.sizes)) {
    refuse_result(description, symbol, "expected " + text(type) + ", as the operation gives, got " + text(found));
  }
}

/// Calls a function of Python on stand-ins for a symbol's values, and records what it does.
ir::Trace expand(const std::shared_ptr<const void>& transform, const Description& description,
                 const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const std::vector<ir::ValueId> values = ir::distinct_values(symbol.arguments);
  transforms::RecordedInputs inputs;
  for (const ir::ValueId id : values) {
    const ir::TensorType* type = trace.tensor_type(id);
    if (type == nullptr)
      refuse_result(description, symbol, "expected tensors among the arguments, got a number of the trace");
    ir::TensorType plain = *type;
    plain.requires_grad = false;
    inputs.types.push_back(ir::make_type(std::move(plain)));
  }
  const ir::Trace origin("symbol", trace.context());
  const c10::AutoGradMode no_gradients(false);
  return transforms::record(origin, description.executor, inputs, [&](const std::vector<at::Tensor>& stand_ins) {
    const dispatch::GilHold gil;
    const interpreter::NativeScope native;
    const std::vector<at::Tensor> results = or_pending(description.of("implementation", symbol), [&] {
      const PythonCall call = call_of(symbol, trace, [&](ir::ValueId id) {
        return python::cast(stand_ins[static_cast<std::size_t>(std::ranges::find(values, id) - values.begin())]);
      });
      return tensors_in(function_in(transform)(*call.positional, **call.keywords));
    });
    const std::vector<ir::ValueId> expected = ir::flat_results(symbol);
    if (results.size() != expected.size()) {
      refuse_result(description, symbol,
                    "expected " + std::to_string(expected.size()) + " results, got " + std::to_string(results.size()));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (expected[i] != ir::kNoValue) require_result(description, symbol, trace.value(expected[i]).type, results[i]);
    }
    return results;
  });
}

// --- how operations are differentiated

/// A `grad_transform`. `driver(arguments, keywords, cotangent_like)` calls it and gives (results, result number of each
/// cotangent asked for, [(argument, gradient)]).
struct PythonRule {
  std::string op;
  std::string overload;
  std::string reason;
  std::shared_ptr<const void> driver;
  transforms::GradRule row;
};

at::Tensor cotangent_like(const at::Tensor& result) {
  ir::TensorType type = bridge::type_of(result);
  type.requires_grad = false;
  return tracer::recorder_on_top()->add_input(ir::make_type(std::move(type)));
}

c10::IValue with_tensors(const c10::IValue& value, std::span<const at::Tensor> tensors, std::size_t& next) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(tensors[next++]) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (std::size_t i = 0; i < value.toListRef().size(); ++i) list.push_back(tensors[next++]);
    return list;
  }
  if (!value.isOptionalTensorList()) return value;
  c10::List<std::optional<at::Tensor>> list;
  for (const c10::IValue& element : value.toListRef()) {
    list.push_back(element.isNone() ? std::nullopt : std::make_optional(tensors[next++]));
  }
  return list;
}

std::size_t position_of(const at::Tensor& argument, const std::vector<at::Tensor>& stand_ins) {
  const auto found = std::ranges::find_if(stand_ins, [&](const at::Tensor& each) { return each.is_same(argument); });
  if (found == stand_ins.end()) {
    throw UserError(ErrorKind::kValue, "put_grad: expected an argument of the operation, got another tensor");
  }
  return static_cast<std::size_t>(found - stand_ins.begin());
}

transforms::RulePlan plan_rule(const PythonRule& rule, const std::vector<c10::IValue>& arguments) {
  const std::vector<at::Tensor> tensors = tracer::tensors_of(arguments);
  transforms::RecordedInputs inputs;
  for (const at::Tensor& tensor : tensors) {
    ir::TensorType type = bridge::type_of(tensor);
    type.requires_grad = false;
    inputs.types.push_back(ir::make_type(std::move(type)));
  }
  const ir::Trace origin("grad_transform", std::make_shared<ir::TraceContext>());
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(rule.op.c_str(), rule.overload.c_str());
  std::size_t result_count = 0;
  std::vector<std::size_t> cotangents;
  std::vector<std::size_t> targets;
  const ir::Trace recorded =
      transforms::record(origin, "grad_transform", inputs, [&](const std::vector<at::Tensor>& stand_ins) {
        const dispatch::GilHold gil;
        const interpreter::NativeScope native;
        std::vector<c10::IValue> replaced;
        std::size_t next = 0;
        for (const c10::IValue& argument : arguments) replaced.push_back(with_tensors(argument, stand_ins, next));
        return or_pending("\n  in " + rule.reason, [&] {
          const PythonCall call = call_of(op, replaced);
          const python::tuple made =
              function_in(rule.driver)(call.positional, call.keywords, python::cpp_function(&cotangent_like));
          std::vector<at::Tensor> outputs = tensors_in(made[0]);
          result_count = outputs.size();
          for (const python::handle& number : made[1]) cotangents.push_back(number.cast<std::size_t>());
          for (const python::handle& pair : made[2]) {
            targets.push_back(position_of(pair[python::int_(0)].cast<at::Tensor>(), stand_ins));
            outputs.push_back(tensors_in(pair[python::int_(1)])[0]);
          }
          return outputs;
        });
      });
  return transforms::make_plan(recorded, result_count, std::move(cotangents), std::move(targets));
}

transforms::Tensors rule_forward(transforms::RuleCall& call) {
  const auto& rule = *static_cast<const PythonRule*>(call.rule->state);
  try {
    auto plan = std::make_shared<const transforms::RulePlan>(plan_rule(rule, call.arguments));
    call.plan = plan;
    return run_forward(call, *plan);
  } catch (const UserError& error) {
    throw UserError(error.kind(), rule.reason + ": " + error.what());
  }
}

void rule_backward(transforms::RuleCall& call) {
  run_backward(call, *static_cast<const transforms::RulePlan*>(call.plan.get()));
}

/// Rows live as long as the process: compilations point to them.
const transforms::GradRule* make_rule(const std::string& executor, const ir::Operator& op,
                                      const python::object& driver) {
  static auto* const kRules = new std::list<PythonRule>;
  PythonRule& rule = kRules->emplace_back();
  rule.op = op.name;
  rule.overload = op.overload;
  rule.reason = "the grad_transform of executor '" + executor + "' for " + executors::callback::printed_name(op);
  rule.driver = share(driver);
  rule.row = {rule.op, rule.overload, rule.reason, nullptr, &rule_forward, &rule_backward, &rule};
  return &rule.row;
}

// --- the functions of `_C.extend`

python::capsule make_executor(const std::string& name) {
  return python::capsule(&CallbackExecutor::make(name, &call_python).row(), dispatch::kExecutorCapsule);
}

void add_operator(const python::capsule& executor, const std::string& name, const std::string& overload,
                  const python::object& function) {
  unwrap(executor).add_operator(find_operator(name, overload), share(function));
}

void add_implementation(const python::capsule& capsule, const std::string& name, const std::string& overload,
                        const python::object& transform, const python::object& checker, const python::object& driver) {
  CallbackExecutor& executor = unwrap(capsule);
  const ir::Operator* op = find_operator(name, overload);
  const Description description{executor.row().name, executors::callback::printed_name(*op)};
  executors::callback::Implementation implementation;
  if (!checker.is_none()) {
    implementation.checker = [checker = share(checker), description](const ir::BoundSymbol& symbol,
                                                                     const ir::Trace& trace) {
      return ask_checker(checker, description, symbol, trace);
    };
  }
  implementation.expand = [transform = share(transform), description](const ir::BoundSymbol& symbol,
                                                                      const ir::Trace& trace) {
    return expand(transform, description, symbol, trace);
  };
  executor.add_implementation(op, std::move(implementation));
  compile::set_rule(executor.row(), op, driver.is_none() ? nullptr : make_rule(description.executor, *op, driver));
}

/// An operator of an executor is differentiated by a grad_transform, or as the operator that it is like.
void set_derivative(const std::string& executor, const std::string& name, const std::string& overload,
                    const python::object& driver, const std::string& like, const std::string& like_overload) {
  const ir::Operator* op = find_operator(name, overload);
  if (!driver.is_none()) {
    transforms::set_derivative(op, {executor, make_rule(executor, *op, driver), nullptr});
  } else {
    transforms::set_derivative(op, {executor, nullptr, find_operator(like, like_overload)});
  }
}

void set_fusion_pass(const python::capsule& executor, const python::object& pass) {
  unwrap(executor).set_fusion_pass([pass = share(pass), name = std::string(unwrap(executor).row().name)](
                                       const ir::Trace& trace) -> std::optional<ir::Trace> {
    const dispatch::HookScope hook;
    return or_pending("\n  in the fusion pass of executor '" + name + "'", [&]() -> std::optional<ir::Trace> {
      const auto object = python::reinterpret_steal<python::object>(dispatch::make_trace_object(trace));
      const python::object result = function_in(pass)(object);
      const ir::Trace* made = dispatch::trace_in(result.ptr());
      if (made == nullptr) throw python::type_error("expected a trace");
      return result.is(object) ? std::nullopt : std::make_optional(*made);
    });
  });
}

compile::Executors rows_of(const python::iterable& capsules) {
  compile::Executors rows;
  for (const python::handle& capsule : capsules) {
    rows.push_back(
        python::isinstance<python::str>(capsule)
            ? compile::find_executor(capsule.cast<std::string>())
            : static_cast<const executors::Executor*>(PyCapsule_GetPointer(capsule.ptr(), dispatch::kExecutorCapsule)));
  }
  return rows;
}

}  // namespace

void init_extend(python::module_& module) {
  python::module_ extend = module.def_submodule("extend", "Executors made in Python; see thunder.extend.");
  extend.def("make_executor", &make_executor, python::arg("name"));
  extend.def("add_operator", &add_operator);
  extend.def("add_implementation", &add_implementation);
  extend.def("set_derivative", &set_derivative);
  extend.def("set_fusion_pass", &set_fusion_pass);
  extend.def("register_executor",
             [](const python::capsule& executor) { compile::register_executor(unwrap(executor).row()); });
  extend.def("deregister_executor", [](const std::string& name) { compile::deregister_executor(name); });
  extend.def("executor_names", &compile::executor_names);
  extend.def("default_executor_names", [] {
    std::vector<std::string> names;
    for (const executors::Executor* executor : compile::default_executors()) names.emplace_back(executor->name);
    return names;
  });
  extend.def("set_default_executors",
             [](const python::iterable& executors) { compile::set_default_executors(rows_of(executors)); });
}

}  // namespace thunder::bindings
