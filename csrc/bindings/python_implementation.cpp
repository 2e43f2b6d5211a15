#include "bindings/python_implementation.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "dispatch/python/python_transform.h"
#include "ir/symbol_values.h"
#include "transforms/replay.h"

namespace thunder::bindings {
namespace {

using executors::callback::CallSite;

/// The exception of a kernel crosses C++ (and threads, in a backward) as PyTorch's own do.
[[noreturn]] void throw_from_kernel(const CallSite& site, python::error_already_set& error) {
  error.restore();
  add_context("\n" + site.message("raised this"));
  python_error carried;
  carried.persist();
  throw carried;
}

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

/// Calls a function of Python on trace tensors for a symbol's values, and records what it does.
ir::Trace expand(const std::shared_ptr<const void>& transform, NumberForm form, const Description& description,
                 const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const std::vector<ir::ValueId> values = ir::distinct_values(symbol.arguments);
  transforms::RecordedInputs inputs;
  for (const ir::ValueId id : values) {
    const ir::TypePtr& type = trace.value(id).type;
    const ir::TensorType* tensor = trace.tensor_type(id);
    ir::TensorType plain = tensor == nullptr ? ir::TensorType() : *tensor;
    plain.requires_grad = false;
    inputs.types.push_back(tensor == nullptr ? type : ir::make_type(std::move(plain)));
  }
  const ir::Trace origin("symbol", trace.context());
  const c10::AutoGradMode no_gradients(false);
  return transforms::record(origin, description.executor, inputs, [&](const std::vector<at::Tensor>& trace_tensors) {
    const dispatch::GilHold gil;
    const interpreter::NativeScope native;
    const std::vector<at::Tensor> results = or_pending(description.of("implementation", symbol), [&] {
      const PythonCall call = call_of(
          symbol, trace,
          [&](ir::ValueId id) {
            return python::cast(
                trace_tensors[static_cast<std::size_t>(std::ranges::find(values, id) - values.begin())]);
          },
          form);
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

}  // namespace

void call_python(const void* function, const CallSite& site, std::vector<c10::IValue>& stack) {
  const dispatch::HookScope hook;
  const c10::AutoGradMode no_gradients(false);
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

executors::callback::Implementation make_implementation(const PythonImplementation& described) {
  const Description description{described.executor, described.operation};
  executors::callback::Implementation implementation;
  if (!described.checker.is_none()) {
    implementation.checker = [checker = share(described.checker), description](const ir::BoundSymbol& symbol,
                                                                               const ir::Trace& trace) {
      return ask_checker(checker, description, symbol, trace);
    };
  }
  const NumberForm form = described.is_operator ? NumberForm::kTensor : NumberForm::kNumber;
  implementation.expand = [transform = share(described.transform), form, description](const ir::BoundSymbol& symbol,
                                                                                      const ir::Trace& trace) {
    return expand(transform, form, description, symbol, trace);
  };
  return implementation;
}

}  // namespace thunder::bindings
