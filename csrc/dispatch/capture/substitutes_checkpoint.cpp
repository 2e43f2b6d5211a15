#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "dispatch/call/thread_state.h"
#include "dispatch/capture/python_backward.h"
#include "dispatch/capture/substitutes.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "tracer/checkpoint.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {
namespace {

constexpr std::array<std::string_view, 6> kOwnKeywords{"use_reentrant", "context_fn",         "determinism_check",
                                                       "debug",         "preserve_rng_state", "early_stop"};

struct Call {
  py::Ref positional;
  py::Ref keywords;
};

/// `checkpoint(function, *args, use_reentrant=…, **kwargs)` -> what `function` gets; throws PendingError.
Call arguments_of_function(const SubstitutedCall& call) {
  Call result{py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(call.count - 1))), py::Ref::steal(PyDict_New())};
  if (!result.positional || !result.keywords) throw PendingError();
  for (std::size_t i = 1; i < call.count; ++i) {
    PyTuple_SET_ITEM(result.positional.get(), static_cast<Py_ssize_t>(i - 1), Py_NewRef(call.arguments[i]));
  }
  const Py_ssize_t named = call.names == nullptr ? 0 : PyTuple_GET_SIZE(call.names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(call.names, i);
    if (std::ranges::find(kOwnKeywords, std::string_view(PyUnicode_AsUTF8(name))) != kOwnKeywords.end()) continue;
    PyObject* value = call.arguments[call.count + static_cast<std::size_t>(i)];
    if (PyDict_SetItem(result.keywords.get(), name, value) < 0) throw PendingError();
  }
  return result;
}

void collect_tensors(PyObject* value, std::vector<at::Tensor>& tensors) {
  if (is_tensor(value)) {
    tensors.push_back(unpack_tensor(value));
  } else if (PyTuple_Check(value) || PyList_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      collect_tensors(PySequence_Fast_GET_ITEM(value, i), tensors);
    }
  } else if (PyDict_Check(value)) {
    PyObject *key, *item;
    for (Py_ssize_t position = 0; PyDict_Next(value, &position, &key, &item) != 0;) collect_tensors(item, tensors);
  }
}

/// Whether it is the variant with an autograd function of its own, which runs a backward in its backward.
bool is_reentrant(const SubstitutedCall& call) {
  py::Borrowed given = call.find(call.count, "use_reentrant");
  return given == nullptr || PyObject_IsTrue(given) != 0;
}

/// The reentrant variant gives gradients only where an argument takes part.
bool is_without_gradient(const Call& inner) {
  std::vector<at::Tensor> tensors;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inner.positional.get()); ++i) {
    PyObject* argument = PyTuple_GET_ITEM(inner.positional.get(), i);
    if (is_tensor(argument)) tensors.push_back(unpack_tensor(argument));
  }
  return std::ranges::none_of(tensors, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

[[noreturn]] void refuse(const char* what) {
  throw UserError(
      ErrorKind::kNotImplemented,
      std::string("thunder.jit: not supported inside a jitted function: torch.utils.checkpoint.checkpoint ") + what);
}

/// Arguments that make it do something besides computing a part again.
void require_plain_checkpoint(const SubstitutedCall& call) {
  if (has_function_mode()) refuse("under a function mode, which is told of what it does");
  const auto is_given = [&](const char* name, PyObject* usual) {
    py::Borrowed value = call.find(call.count, name);
    return value != nullptr && value != usual;
  };
  const py::Ref no_context = loaded_function("torch.utils.checkpoint", "noop_context_fn");
  if (is_given("context_fn", no_context.get())) refuse("with context_fn");
  if (is_given("debug", Py_False)) refuse("with debug");
  if (is_given("preserve_rng_state", Py_True)) {
    refuse("with preserve_rng_state=False, where the part may draw other random numbers the second time");
  }
  py::Borrowed check = call.find(call.count, "determinism_check");
  const bool is_known =
      check == nullptr || (PyUnicode_Check(check) && (PyUnicode_CompareWithASCIIString(check, "default") == 0 ||
                                                      PyUnicode_CompareWithASCIIString(check, "none") == 0));
  if (!is_known) refuse("with another determinism_check than 'default' and 'none'");
}

py::Ref call_checkpointed(const SubstitutedCall& call, tracer::Recorder& recorder, PythonBackwards& backwards) {
  require_plain_checkpoint(call);
  const Call inner = arguments_of_function(call);
  const bool reentrant = is_reentrant(call);
  const bool records = c10::GradMode::is_enabled() && !(reentrant && is_without_gradient(inner));
  const c10::AutoGradMode mode(records);
  tracer::CheckpointRegion region(recorder, reentrant);
  const auto run = [&] {
    return py::Ref::steal(PyObject_Call(call.arguments[0], inner.positional.get(), inner.keywords.get()));
  };
  py::Ref result = records ? backwards.call_without_effects(run, "a part under torch.utils.checkpoint") : run();
  if (!result) throw PendingError();
  std::vector<at::Tensor> tensors;
  collect_tensors(result.get(), tensors);
  if (records) region.finish(tensors);
  return result;
}

}  // namespace

void add_checkpoint_substitute(interpreter::TrackerOptions& options, PythonBackwards& backwards) {
  const py::Ref checkpoint = loaded_function("torch.utils.checkpoint", "checkpoint");
  if (!checkpoint) return;
  options.substitute(checkpoint.get(),
                     [&backwards](PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
                       tracer::Recorder* recorder = tracer::recorder_on_top();
                       if (count == 0 || recorder == nullptr) return 0;
                       try {
                         *result = call_checkpointed({arguments, count, names}, *recorder, backwards).release();
                         return 1;
                       } catch (...) {
                         set_python_error();
                         return -1;
                       }
                     });
}

}  // namespace thunder::dispatch
