#include "dispatch/compiled_function.h"

#include <structmember.h>
#include <torch/csrc/autograd/python_hook.h>

#include <new>
#include <set>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "compile/pass_runner.h"
#include "dispatch/call/overrides.h"
#include "dispatch/call/specialization_cache.h"
#include "dispatch/call/thread_state.h"
#include "dispatch/capture/call_transforms.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/compile_report.h"
#include "dispatch/functional.h"
#include "dispatch/numbers/size_number.h"
#include "dispatch/numbers/traced_number.h"
#include "dispatch/options.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/trace_object.h"
#include "dispatch/python/trace_passes.h"
#include "interpreter/loop/interpreted_getter.h"
#include "interpreter/traces/guard_trace.h"
#include "runtime/memory_pool.h"
#include "runtime/partial_gradients.h"
#include "tracer/trace_session.h"

namespace thunder::dispatch {
namespace {

struct CompiledFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* callable;
  PyObject* module;  ///< see Traced
  PyObject* dict;
  PyObject* weak_references;
  SpecializationCache* cache;
};

CompiledFunction& as_compiled(PyObject* self) { return *reinterpret_cast<CompiledFunction*>(self); }

/// Whether a program that is traced may call it as what it wraps: one with overrides only inside of the module that has
/// them.
bool belongs_to_trace(const CompiledFunction& compiled) {
  const PyObject* registry = overrides_registry(compiled.module);
  return registry == nullptr || registry == tracer::TraceSession::current().overrides;
}

/// Its transforms hold for its own traces: those of another program do not know them.
PyObject* refuse_inside(PyObject* module) {
  try {
    const std::string message = "thunder.jit: a compiled module is called that runs by itself, as " +
                                describe_overrides(module) + "; give these transforms to the outer program";
    tracer::note_refusal(message);
    PyErr_SetString(PyExc_NotImplementedError, message.c_str());
  } catch (const PendingError&) {
  }
  return nullptr;
}

PyObject* call(PyObject* self, PyObject* const* arguments, std::size_t flagged_count, PyObject* names) {
  CompiledFunction& compiled = as_compiled(self);
  // Called by native code in the middle of a trace: the program is part of that trace.
  if (is_tracing()) {
    if (!belongs_to_trace(compiled)) return refuse_inside(compiled.module);
    return interpreter::call_from_c(compiled.callable, arguments, flagged_count, names);
  }
  const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(flagged_count));
  const py::Ref alive = py::Ref::share(self);
  return compiled.cache->call({arguments, count, names});
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* const names[] = {"callable", "options", "module", nullptr};
  PyObject *callable, *options = nullptr, *module = nullptr;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O!O", const_cast<char**>(names), &callable, &PyDict_Type,
                                  &options, &module) == 0) {
    return nullptr;
  }
  if (PyCallable_Check(callable) == 0) {
    return PyErr_Format(PyExc_TypeError, "thunder.jit: expected a callable, got an object of type '%.200s'",
                        Py_TYPE(callable)->tp_name);
  }
  std::optional<DispatchOptions> chosen = read_options(options);
  if (!chosen) return nullptr;
  py::Ref self = py::Ref::steal(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  CompiledFunction& compiled = as_compiled(self.get());
  compiled.vectorcall = call;
  compiled.callable = Py_NewRef(callable);
  compiled.module = Py_NewRef(module == nullptr || module == Py_None ? callable : module);
  compiled.cache = new SpecializationCache({compiled.callable, compiled.module}, std::move(chosen->compile),
                                           chosen->cache, chosen->trace);
  compiled.dict = PyDict_New();
  if (compiled.dict == nullptr || PyDict_SetItemString(compiled.dict, "__wrapped__", callable) < 0) return nullptr;
  return self.release();
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  const CompiledFunction& compiled = as_compiled(self);
  Py_VISIT(compiled.callable);
  Py_VISIT(compiled.module);
  Py_VISIT(compiled.dict);
  return compiled.cache == nullptr ? 0 : compiled.cache->visit(visit, arg);
}

int clear(PyObject* self) {
  CompiledFunction& compiled = as_compiled(self);
  if (compiled.cache != nullptr) compiled.cache->clear();
  Py_CLEAR(compiled.dict);
  return 0;
}

void destroy_compiled(PyObject* self) {
  PyObject_GC_UnTrack(self);
  CompiledFunction& compiled = as_compiled(self);
  if (compiled.weak_references != nullptr) PyObject_ClearWeakRefs(self);
  clear(self);
  delete std::exchange(compiled.cache, nullptr);
  Py_CLEAR(compiled.callable);
  Py_CLEAR(compiled.module);
  Py_TYPE(self)->tp_free(self);
}

PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
  return instance == nullptr || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

PyObject* represent(PyObject* self) { return PyUnicode_FromFormat("<thunder.jit of %R>", as_compiled(self).callable); }

using TraceGetter = std::vector<ir::Trace> (*)(const Specialization&);

template <TraceGetter get>
PyObject* traces(PyObject* self, PyObject*) {
  try {
    const std::shared_ptr<const Specialization> last = as_compiled(self).cache->last();
    return make_trace_list(last == nullptr ? std::vector<ir::Trace>{} : get(*last));
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

std::vector<ir::Trace> forward(const Specialization& specialization) {
  return specialization.computation->forward_traces();
}
std::vector<ir::Trace> backward(const Specialization& specialization) {
  // May compile, and wait for another thread that does.
  const GilRelease released(true);
  return specialization.computation->backward_traces();
}
ir::Trace checked_trace(ir::Trace trace) {
  if (const compile::TraceCheck check = compile::trace_check()) check(trace);
  return trace;
}
std::vector<ir::Trace> prologue(const Specialization& specialization) {
  return {checked_trace(prologue_of(specialization))};
}
std::vector<ir::Trace> epilogue(const Specialization& specialization) {
  return {checked_trace(interpreter::epilogue_trace(specialization.structure))};
}

PyObject* wait(PyObject* self, PyObject*) {
  try {
    for (const auto& specialization : as_compiled(self).cache->all()) {
      if (specialization->runs_eager) continue;
      const GilRelease released(true);
      specialization->computation->wait();
    }
  } catch (...) {
    set_python_error();
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* clear_cache(PyObject* self, PyObject*) {
  as_compiled(self).cache->clear();
  Py_RETURN_NONE;
}

/// Whether a specialization runs as a CUDA graph, or why it does not.
std::string graph_state(const Specialization& specialization) {
  if (specialization.runs_eager) return "it runs in eager";
  if (specialization.graph != nullptr) return specialization.graph->state();
  if (specialization.training_graph != nullptr) return specialization.training_graph->state();
  if (specialization.has_symbols) return "sizes are symbols";
  const compile::GraphFacts* training = specialization.computation->training_facts();
  const std::string& obstacle = (training != nullptr ? *training : specialization.computation->graph_facts()).obstacle;
  return obstacle.empty() ? "cuda_graphs=False" : obstacle;
}

PyObject* texts(const std::vector<std::string>& lines) {
  py::Ref list = py::Ref::steal(PyList_New(0));
  for (const std::string& line : lines) {
    const py::Ref text = py::Ref::steal(PyUnicode_FromString(line.c_str()));
    if (!list || !text || PyList_Append(list.get(), text.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* statistics(PyObject* self, PyObject*) {
  const SpecializationCache& cache = *as_compiled(self).cache;
  py::Ref seconds = py::Ref::steal(PyDict_New());
  std::size_t guards = 0;
  const std::shared_ptr<const Specialization> last = cache.last();
  if (seconds && last != nullptr) {
    guards = last->guards.guard_count();
    std::map<std::string, double> timings = last->computation->timings();
    timings.emplace("trace", last->trace_seconds);
    for (const auto& [name, value] : timings) {
      const py::Ref number = py::Ref::steal(PyFloat_FromDouble(value));
      if (!number || PyDict_SetItemString(seconds.get(), name.c_str(), number.get()) < 0) return nullptr;
    }
  }
  const py::Ref pinned = py::Ref::steal(texts(last == nullptr ? std::vector<std::string>() : last->pinned_sizes));
  if (!pinned) return nullptr;
  const std::string graph = last == nullptr ? "not called yet" : graph_state(*last);
  const runtime::PoolStatistics pool = runtime::pool_statistics();
  const py::Ref memory =
      py::Ref::steal(Py_BuildValue("{sn sn sn}", "live", static_cast<Py_ssize_t>(pool.live), "cached",
                                   static_cast<Py_ssize_t>(pool.cached), "peak", static_cast<Py_ssize_t>(pool.peak)));
  if (!memory) return nullptr;
  std::set<const compile::Compiled*> programs;
  for (const auto& specialization : cache.all()) {
    if (!specialization->runs_eager) programs.insert(specialization->computation.get());
  }
  return Py_BuildValue(
      "{sK sK sK sK sn sn sn sn sK sO sO sO ss}", "calls", cache.hits() + cache.misses() + cache.eager_calls(),
      "cache_hits", cache.hits(), "cache_misses", cache.misses(), "eager_calls", cache.eager_calls(), "specializations",
      static_cast<Py_ssize_t>(cache.all().size()), "programs", static_cast<Py_ssize_t>(programs.size()), "guards",
      static_cast<Py_ssize_t>(guards), "shared_guards", static_cast<Py_ssize_t>(cache.check_count()),
      "full_guard_passes", static_cast<unsigned long long>(cache.full_passes()), "seconds", seconds.get(), "pool_bytes",
      memory.get(), "pinned_sizes", pinned.get(), "cuda_graph", graph.c_str());
}

/// For each specialization its symbols, conditions, and sizes that are needed as numbers.
PyObject* shapes(PyObject* self, PyObject*) {
  py::Ref list = py::Ref::steal(PyList_New(0));
  for (const auto& specialization : as_compiled(self).cache->all()) {
    const py::Ref symbols = py::Ref::steal(texts(specialization->size_symbols));
    const py::Ref conditions = py::Ref::steal(texts(specialization->size_conditions));
    const py::Ref pinned = py::Ref::steal(texts(specialization->pinned_sizes));
    if (!list || !symbols || !conditions || !pinned) return nullptr;
    const py::Ref row = py::Ref::steal(PyTuple_Pack(3, symbols.get(), conditions.get(), pinned.get()));
    if (!row || PyList_Append(list.get(), row.get()) < 0) return nullptr;
  }
  return list.release();
}

using Report = PyObject* (*)(const compile::Compiled&);

template <Report get>
PyObject* report(PyObject* self, PyObject*) {
  const std::shared_ptr<const Specialization> last = as_compiled(self).cache->last();
  return last == nullptr ? PyList_New(0) : get(*last->computation);
}

PyObject* explained_misses(PyObject* self, PyObject*) { return to_python(as_compiled(self).cache->explained_misses()); }

// `time_guards(count, *args, **kwargs)`: seconds per check of the guards for this call, by the clock in C++.
PyObject* time_guards(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const std::uint64_t repeats = count == 0 ? 0 : PyLong_AsUnsignedLongLong(arguments[0]);
  if (count == 0 || PyErr_Occurred() != nullptr) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_TypeError, "time_guards: expected a count");
    return nullptr;
  }
  const interpreter::CallArguments call{arguments + 1, static_cast<std::size_t>(count - 1), names};
  return PyFloat_FromDouble(as_compiled(self).cache->time_guards(call, repeats));
}

PyObject* get_hits(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(as_compiled(self).cache->hits()); }
PyObject* get_misses(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(as_compiled(self).cache->misses()); }

PyMethodDef compiled_methods[] = {
    {"last_traces", traces<forward>, METH_NOARGS, "Stages of the last computation trace, recorded first."},
    {"last_backward_traces", traces<backward>, METH_NOARGS, "Stages of the last backward trace."},
    {"last_prologue_traces", traces<prologue>, METH_NOARGS, "The last prologue: guards and inputs."},
    {"last_epilogue_traces", traces<epilogue>, METH_NOARGS, "The last epilogue: writes to outside objects."},
    {"stats", statistics, METH_NOARGS, "Counts of calls, guards and specializations, and seconds of each stage."},
    {"passes", report<report_passes>, METH_NOARGS, "What each pass of the last compilation did."},
    {"rules", report<report_rules>, METH_NOARGS, "Which rule served each operation that was differentiated."},
    {"wait", wait, METH_NOARGS, "Block until what compiles in the background is in place."},
    {"shapes", &shapes, METH_NOARGS, nullptr},
    {"explained_misses", explained_misses, METH_NOARGS, "Why calls were traced; see thunder.explain_misses."},
    {"time_guards", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(time_guards)),
     METH_FASTCALL | METH_KEYWORDS, "time_guards(count, *args, **kwargs): seconds for one check of the guards."},
    {"clear_cache", clear_cache, METH_NOARGS, "Forget all specializations."},
    {nullptr, nullptr, 0, nullptr},
};

/// `torch.fx.Tracer` takes nothing but functions of Python and modules: while it traces, the function that is wrapped
/// tells its class.
PyObject* get_class(PyObject* self, void*) {
  const bool is_told = PyFunction_Check(as_compiled(self).callable) && is_fx_tracing();
  return Py_NewRef(reinterpret_cast<PyObject*>(is_told ? &PyFunction_Type : Py_TYPE(self)));
}

PyObject* get_globals(PyObject* self, void*) {
  return PyObject_GetAttrString(as_compiled(self).callable, "__globals__");
}

PyGetSetDef compiled_attributes[] = {
    {"__class__", get_class, nullptr, nullptr, nullptr},
    {"__globals__", get_globals, nullptr, "Those of the function that is wrapped.", nullptr},
    {"cache_hits", get_hits, nullptr, "Calls that ran an existing specialization.", nullptr},
    {"cache_misses", get_misses, nullptr, "Calls that were traced and compiled.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef members[] = {
    {"module", T_OBJECT, offsetof(CompiledFunction, module), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledFunction, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject compiled_function_type = [] {
  PyTypeObject type{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&type), 1);
  type.tp_name = "thunder._C.CompiledFunction";
  type.tp_basicsize = sizeof(CompiledFunction);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  type.tp_doc = "CompiledFunction(callable, options, module): what thunder.jit returns for a function.";
  type.tp_new = make;
  type.tp_dealloc = destroy_compiled;
  type.tp_traverse = traverse;
  type.tp_clear = clear;
  type.tp_vectorcall_offset = offsetof(CompiledFunction, vectorcall);
  type.tp_call = PyVectorcall_Call;
  type.tp_dictoffset = offsetof(CompiledFunction, dict);
  type.tp_weaklistoffset = offsetof(CompiledFunction, weak_references);
  type.tp_descr_get = bind;
  type.tp_repr = represent;
  type.tp_methods = compiled_methods;
  type.tp_members = members;
  type.tp_getset = compiled_attributes;
  return type;
}();

}  // namespace

namespace {

/// The function that `torch._disable_dynamo` wrapped, as it does with methods of optimizers; null: it is another
/// function. Its wrapper imports torch._dynamo when it is first called, and keeps in an attribute what that makes.
PyObject* behind_disabled(PyObject* function) {
  static PyObject* const maker = loaded_function("torch._compile", "_disable_dynamo").release();
  PyObject* closure = PyFunction_GET_CLOSURE(function);
  if (maker == nullptr || closure == nullptr) return nullptr;
  if (PyFunction_GET_GLOBALS(function) != PyFunction_GET_GLOBALS(maker)) return nullptr;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const py::Ref names = py::Ref::steal(PyCode_GetFreevars(code));
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names.get()); ++i) {
    const bool is_wrapped = PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names.get(), i), "fn") == 0;
    PyObject* wrapped = is_wrapped ? PyCell_GET(PyTuple_GET_ITEM(closure, i)) : nullptr;
    if (wrapped != nullptr && PyFunction_Check(wrapped)) return wrapped;
  }
  return PyErr_Clear(), nullptr;
}

}  // namespace

PyObject* wrapped_callable(PyObject* object) {
  if (PyFunction_Check(object)) {
    if (PyObject* function = behind_disabled(object)) return function;
    // `torch.compile` and `torch.compiler.disable` keep the original function here.
    static PyObject* const name = PyUnicode_InternFromString("_torchdynamo_orig_callable");
    PyObject* attributes = reinterpret_cast<PyFunctionObject*>(object)->func_dict;
    return attributes == nullptr ? nullptr : PyDict_GetItemWithError(attributes, name);
  }
  if (Py_TYPE(object) != &compiled_function_type) return nullptr;
  const CompiledFunction& compiled = as_compiled(object);
  return belongs_to_trace(compiled) ? compiled.callable : nullptr;
}

int init_dispatch(PyObject* module) {
  runtime::set_hook_index([](const torch::autograd::FunctionPreHook& hook) -> std::optional<std::size_t> {
    // PyTorch keeps the type's own symbols to itself.
    if (!std::string_view(typeid(hook).name()).ends_with("PyFunctionTensorPreHookE")) return std::nullopt;
    return static_cast<const torch::autograd::PyFunctionTensorPreHook&>(hook).value_idx;
  });
  if (PyModule_AddType(module, &compiled_function_type) < 0) return -1;
  if (init_functional(module) < 0) return -1;
  if (init_traced_number() < 0 || init_size_number() < 0) return -1;
  if (init_trace_passes(module) < 0) return -1;
  return init_trace_object(module);
}

}  // namespace thunder::dispatch
