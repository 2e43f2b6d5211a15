#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "interpreter/guards/guard_compiler.h"
#include "interpreter/guards/guard_tree.h"
#include "interpreter/interpreter_module.h"
#include "interpreter/loop/interpret.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/structures/structure_builder.h"

/// Python programs for tests of the interpreter layer, traced without torch: `Tensor()` is a tensor from outside, and
/// what it becomes in a trace, or is computed from it there, is a `Traced()`.
namespace thunder::check {

/// `object`, or a C++ exception in place of the Python one.
inline py::Ref require(PyObject* object) {
  if (object != nullptr) return py::Ref::steal(object);
  PyErr_Print();
  throw std::runtime_error("a Python exception, printed above");
}

class FakeHooks final : public interpreter::TensorHooks {
 public:
  py::Ref real_type, traced_type;

  [[nodiscard]] bool is_real_tensor(PyObject* object) const override { return is(object, real_type); }
  [[nodiscard]] bool is_traced(PyObject* object) const override { return is(object, traced_type); }
  PyObject* lift(PyObject* real, const std::string& path) override {
    reals_.push_back(py::Ref::share(real));
    paths.push_back(path);
    traced_.push_back(require(PyObject_CallNoArgs(traced_type.get())));
    return Py_NewRef(traced_.back().get());
  }
  PyObject* original(PyObject* traced) const override {
    const std::optional<std::size_t> index = position(traced_, traced);
    return index ? Py_NewRef(reals_[*index].get()) : nullptr;
  }
  [[nodiscard]] std::size_t input_index(PyObject* real) const override { return position(reals_, real).value(); }
  [[nodiscard]] std::string describe(PyObject*) const override { return "a tensor"; }
  [[nodiscard]] interpreter::ConstantKind classify(PyObject*) const override {
    return interpreter::ConstantKind::kUnknown;
  }

  std::vector<std::string> paths;

 private:
  static bool is(PyObject* object, const py::Ref& type) {
    return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type.get())) != 0;
  }
  static std::optional<std::size_t> position(const std::vector<py::Ref>& objects, PyObject* object) {
    for (std::size_t i = 0; i < objects.size(); ++i) {
      if (objects[i].get() == object) return i;
    }
    return std::nullopt;
  }
  std::vector<py::Ref> reals_, traced_;
};

/// Takes every tensor.
inline const interpreter::TensorCheck kAnyTensor{[](const void*, std::size_t, PyObject*) { return true; },
                                                 [](PyObject*) { return std::string("a tensor"); },
                                                 [](PyObject*) { return interpreter::TensorMemory{}; }, nullptr};

/// A module of its own, whose function `f` is traced, once, and then called.
class TracedProgram {
 public:
  explicit TracedProgram(const std::string& source)
      : globals_(require(PyDict_New())), tracker_(hooks_, interpreter::TrackerOptions{}) {
    static const py::Ref kInterpreter = [] {
      py::Ref module = require(PyModule_New("interpreter"));
      if (interpreter::init_interpreter(module.get()) < 0) require(nullptr);
      return module;
    }();
    PyDict_SetItemString(globals_.get(), "__builtins__", PyEval_GetBuiltins());
    execute(
        "class Tensor: pass\n"
        "class Traced:\n"
        "    def __add__(self, other): return Traced()\n" +
        source);
    hooks_.real_type = evaluate("Tensor");
    hooks_.traced_type = evaluate("Traced");
  }

  void execute(const std::string& source) {
    require(PyRun_String(source.c_str(), Py_file_input, globals_.get(), globals_.get()));
  }
  py::Ref evaluate(const std::string& expression) {
    return require(PyRun_String(expression.c_str(), Py_eval_input, globals_.get(), globals_.get()));
  }
  /// Whether a Python expression is true.
  bool holds(const std::string& expression) { return PyObject_IsTrue(evaluate(expression).get()) == 1; }

  /// Runs `f(*arguments)`, a tuple; what it wrote stays until `finish`. False: it raised, or cannot be rebuilt.
  bool trace(const std::string& arguments) {
    const py::Ref values = evaluate(arguments);
    positional_ = static_cast<std::size_t>(PyTuple_GET_SIZE(values.get()));
    const py::Ref function = evaluate("f");
    tracker_.admit_constant(function.get(), "f");
    const py::Ref seen = require(PyTuple_New(PyTuple_GET_SIZE(values.get())));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values.get()); ++i) {
      const std::string name = "x" + std::to_string(i);
      PyTuple_SET_ITEM(seen.get(), i,
                       require(tracker_.admit_argument(i, name, PyTuple_GET_ITEM(values.get(), i))).release());
    }
    result_ = py::Ref::steal(interpreter::interpret(function.get(), seen.get(), nullptr, &tracker_));
    interpreter::StructureBuilder builder(tracker_);
    if (!result_ || !builder.add_result(result_.get()) || !builder.add_effects(tracker_.journal())) return false;
    structure_ = builder.finish();
    outputs_ = builder.outputs().size();
    return true;
  }

  /// Takes back what the program wrote, and compiles its guards.
  void finish() {
    tracker_.journal().rollback();
    guards_ = interpreter::GuardCompiler(tracker_.provenance(), hooks_).compile(positional_, nullptr);
    tree_.add(guards_, std::vector<std::uint32_t>(hooks_.paths.size(), 0));
  }

  /// The expression of the guard that fails for these arguments; empty: none.
  std::string failing_guard(const std::string& arguments) {
    arguments_ = evaluate(arguments);
    const interpreter::CallArguments call{PySequence_Fast_ITEMS(arguments_.get()),
                                          static_cast<std::size_t>(PyTuple_GET_SIZE(arguments_.get())), nullptr};
    run_.emplace();
    inputs.assign(hooks_.paths.size(), nullptr);
    if (tree_.run(call, kAnyTensor, 1, *run_) != 0) {
      tree_.inputs(*run_, 0, inputs.data());
      return "";
    }
    const std::vector<interpreter::GuardFailure> failures = guards_.failures(call, kAnyTensor);
    return failures.empty() ? "(unknown)" : guards_.info(failures.front().guard).expression;
  }

  /// The result of a call whose guards hold; `outputs` is a tuple of what the computation gave.
  py::Ref call(const std::string& arguments, const std::string& outputs = "()") {
    if (const std::string failed = failing_guard(arguments); !failed.empty()) {
      throw std::runtime_error("the guard of " + failed + " failed");
    }
    const py::Ref computed = evaluate(outputs);
    std::vector<PyObject*> externals;
    for (const std::uint32_t index : structure_.externals()) externals.push_back(tree_.loaded(*run_, 0, index));
    return require(structure_.build({PySequence_Fast_ITEMS(computed.get()), inputs.data(), externals.data()}));
  }

  [[nodiscard]] interpreter::Tracker& tracker() { return tracker_; }
  [[nodiscard]] FakeHooks& hooks() { return hooks_; }
  [[nodiscard]] const interpreter::GuardProgram& guards() const { return guards_; }
  [[nodiscard]] std::size_t outputs() const { return outputs_; }
  std::vector<PyObject*> inputs;

 private:
  py::Ref globals_, result_, arguments_;
  FakeHooks hooks_;
  interpreter::Tracker tracker_;
  interpreter::Structure structure_;
  interpreter::GuardProgram guards_;
  interpreter::GuardTree tree_;
  std::optional<interpreter::GuardRun> run_;
  std::size_t positional_ = 0;
  std::size_t outputs_ = 0;
};

}  // namespace thunder::check
