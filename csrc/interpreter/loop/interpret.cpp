#include "interpreter/python/cpython_compat.h"

#include "interpreter/loop/interpret.h"

#include <unordered_map>
#include <utility>

#include "interpreter/loop/context.h"
#include "interpreter/loop/eval.h"
#include "interpreter/loop/garbage_collection.h"
#include "interpreter/loop/native_evaluation.h"
#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {
namespace {

// All guarded by the GIL.
int hook_users = 0;
/// Adopted generator -> weak reference whose callback forgets it.
std::unordered_map<PyObject*, PyObject*>& adopted_generators() {
  static auto* generators = new std::unordered_map<PyObject*, PyObject*>;
  return *generators;
}

PyObject* evaluate(PyThreadState* tstate, Frame* frame, int throwing);

/// Counted: CPython enters our evaluation function while at least one holder remains.
void retain_evaluation_hook() {
  if (hook_users++ > 0) return;
  watch_collections();
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  const _PyFrameEvalFunction installed = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (installed == evaluate) return;
  previous_evaluation = installed;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

void release_evaluation_hook() {
  if (--hook_users > 0) return;
  unwatch_collections();
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  // Someone else's function on top of ours keeps forwarding to us; without a context we only forward.
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate)
    _PyInterpreterState_SetEvalFrameFunc(interpreter, previous_evaluation);
}

/// Sets this thread's interpretation until destroyed, and keeps our evaluation function installed meanwhile.
class ContextScope {
 public:
  explicit ContextScope(Context* context) : saved_(std::exchange(current_context, context)) {
    retain_evaluation_hook();
  }
  ~ContextScope() {
    release_evaluation_hook();
    current_context = saved_;
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* saved_;
};

/// Runs a frame that a native function entered.
PyObject* evaluate_below_native(PyThreadState* tstate, Frame* frame, int throwing) {
  const Treatment treatment = current_context->outer->observer->treatment(code_of(frame));
  if (treatment == Treatment::kInterpret) {
    const OuterScope interpreted;
    return evaluate_frame(tstate, frame, throwing);
  }
  const NativeFunctionScope native(treatment);
  return evaluate_natively(tstate, frame, throwing);
}

PyObject* evaluate(PyThreadState* tstate, Frame* frame, int throwing) {
  if (current_context != nullptr) [[likely]] {
    const bool is_native = current_context->outer != nullptr;
    return (is_native ? evaluate_below_native : evaluate_frame)(tstate, frame, throwing);
  }
  const auto& generators = adopted_generators();
  if (!generators.empty()) {
    PyObject* generator = generator_of(frame);
    if (generator != nullptr && generators.contains(generator)) {
      Context context;
      const ContextScope scope(&context);
      return evaluate_frame(tstate, frame, throwing);
    }
  }
  return evaluate_natively(tstate, frame, throwing);
}

PyObject* forget_generator(PyObject* generator_address, PyObject* /*reference*/) {
  auto& generators = adopted_generators();
  const auto found = generators.find(static_cast<PyObject*>(PyLong_AsVoidPtr(generator_address)));
  if (found != generators.end()) {
    PyObject* reference = found->second;
    generators.erase(found);
    Py_DECREF(reference);
    release_evaluation_hook();
  }
  Py_RETURN_NONE;
}

}  // namespace

int adopt_generator(PyObject* generator) {
  if (!PyGen_CheckExact(generator) && !PyCoro_CheckExact(generator) && !PyAsyncGen_CheckExact(generator)) return 0;
  auto& generators = adopted_generators();
  if (generators.contains(generator)) return 0;
  static PyMethodDef forget = {"forget_generator", forget_generator, METH_O, nullptr};
  const py::Ref address = py::Ref::steal(PyLong_FromVoidPtr(generator));
  if (!address) return -1;
  const py::Ref callback = py::Ref::steal(PyCFunction_New(&forget, address.get()));
  if (!callback) return -1;
  PyObject* reference = PyWeakref_NewRef(generator, callback.get());
  if (reference == nullptr) return -1;
  generators.emplace(generator, reference);
  retain_evaluation_hook();
  return 0;
}

PyObject* interpret(PyObject* callable, PyObject* arguments, PyObject* keywords, Observer* observer) {
  Context context;
  context.observer = observer;
  const ContextScope scope(&context);
  return PyObject_Call(callable, arguments, keywords);
}

}  // namespace thunder::interpreter
