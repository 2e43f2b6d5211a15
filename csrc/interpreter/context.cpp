#include "interpreter/context.h"

#include <pthread.h>

#include <unordered_map>
#include <utility>

#include "interpreter/eval.h"
#include "interpreter/garbage_collection.h"
#include "interpreter/interpret.h"
#include "interpreter/python_ref.h"

namespace thunder::interpreter {

thread_local Context* current_context = nullptr;

namespace {

// All guarded by the GIL.
int hook_users = 0;
_PyFrameEvalFunction previous_evaluation = nullptr;
/// Adopted generator -> weak reference whose callback forgets it.
std::unordered_map<PyObject*, PyObject*>& adopted_generators() {
  static auto* generators = new std::unordered_map<PyObject*, PyObject*>;
  return *generators;
}

thread_local Frame* forwarded_frame = nullptr;

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

PyObject* evaluate(PyThreadState* tstate, Frame* frame, int throwing) {
  if (current_context != nullptr) [[likely]]
    return evaluate_frame(tstate, frame, throwing);
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

}  // namespace

PyObject* evaluate_natively(PyThreadState* tstate, Frame* frame, int throwing) {
  // Whoever installed itself after us may call us back for the frame that we handed over.
  if (previous_evaluation == nullptr || previous_evaluation == evaluate || forwarded_frame == frame)
    return _PyEval_EvalFrameDefault(tstate, frame, throwing);
  Frame* outer = std::exchange(forwarded_frame, frame);
  PyObject* result = previous_evaluation(tstate, frame, throwing);
  forwarded_frame = outer;
  return result;
}

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

ContextScope::ContextScope(Context* context) : saved_(std::exchange(current_context, context)) {
  retain_evaluation_hook();
}

ContextScope::~ContextScope() {
  release_evaluation_hook();
  current_context = saved_;
}

NativeScope::NativeScope() : saved_(std::exchange(current_context, nullptr)) {}
NativeScope::~NativeScope() { current_context = static_cast<Context*>(saved_); }

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

const char* stack_limit() {
  static constexpr std::size_t kReserve = 192 * 1024;
  thread_local const char* limit = [] {
    pthread_attr_t attributes;
    void* lowest = nullptr;
    std::size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      pthread_attr_getstack(&attributes, &lowest, &size);
      pthread_attr_destroy(&attributes);
    }
    return static_cast<const char*>(lowest) + (size > 2 * kReserve ? kReserve : size / 2);
  }();
  return limit;
}

}  // namespace thunder::interpreter
