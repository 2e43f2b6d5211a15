// Executors made in Python: `thunder.extend` describes them, callback executors are what they become.
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "bindings/python_implementation.h"
#include "bindings/python_rule.h"
#include "bridge/number.h"
#include "compile/execution.h"
#include "compile/executor_list.h"
#include "dispatch/options.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_transform.h"
#include "dispatch/python/trace_object.h"
#include "executors/callback/callback_executor.h"
#include "operators/facts.h"
#include "tracer/operators.h"
#include "transforms/claimed.h"

namespace thunder::bindings {
namespace {

using executors::callback::CallbackExecutor;

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

python::capsule make_executor(const std::string& name) {
  return python::capsule(&CallbackExecutor::make(name, &call_python).row(), dispatch::kExecutorCapsule);
}

void add_operator(const python::capsule& executor, const std::string& name, const std::string& overload,
                  const python::object& function) {
  unwrap(executor).add_operator(find_operator(name, overload), share(function));
}

void add_implementation(const python::capsule& capsule, const std::string& name, const std::string& overload,
                        const python::object& transform, bool is_operator, const python::object& checker,
                        const python::object& driver) {
  CallbackExecutor& executor = unwrap(capsule);
  const ir::Operator* op = find_operator(name, overload);
  const std::string owner = executor.row().name;
  executor.add_implementation(
      op, make_implementation({owner, executors::callback::printed_name(*op), transform, is_operator, checker}));
  compile::set_rule(executor.row(), op, driver.is_none() ? nullptr : make_rule(owner, *op, driver));
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

at::Tensor wrap_number(const python::object& number) {
  if (PyBool_Check(number.ptr())) return bridge::wrap_number(number.cast<bool>());
  if (PyLong_Check(number.ptr())) return bridge::wrap_number(number.cast<std::int64_t>());
  if (PyFloat_Check(number.ptr())) return bridge::wrap_number(number.cast<double>());
  const Py_complex value = PyComplex_AsCComplex(number.ptr());
  if (PyErr_Occurred() != nullptr) throw python::error_already_set();
  return bridge::wrap_number(c10::complex<double>(value.real, value.imag));
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
  extend.def("note_declared", [](const std::string& name, const std::string& overload) {
    operators::note_declared(*find_operator(name, overload));
  });
  extend.def("add_implementation", &add_implementation);
  extend.def("set_derivative", &set_derivative);
  extend.def("set_fusion_pass", &set_fusion_pass);
  extend.def("register_executor",
             [](const python::capsule& executor) { compile::register_executor(unwrap(executor).row()); });
  extend.def("deregister_executor", [](const std::string& name) { compile::deregister_executor(name); });
  extend.def("wrap_number", &wrap_number, "A number as operators carry it that take a tensor.");
  extend.def("has_tangent", [](const at::Tensor& tensor) { return tensor._fw_grad(/*level=*/0).defined(); });
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
