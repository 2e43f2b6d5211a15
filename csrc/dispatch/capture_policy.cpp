#include "dispatch/capture_policy.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "dispatch/source_locator.h"

namespace thunder::dispatch {
namespace {

using interpreter::Treatment;

// Folders and files, below the standard library or the torch package, whose functions CPython runs by itself: they
// never see a tensor of the trace, and nothing that they read decides what the program computes.
constexpr std::array kNativeLibrary{"abc.py",       "enum.py",       "importlib/", "inspect.py",     "linecache.py",
                                    "logging/",     "re/",           "re.py",      "tokenize.py",    "traceback.py",
                                    "typing.py",    "warnings.py",   "weakref.py", "_weakrefset.py", "threading.py",
                                    "sre_parse.py", "sre_compile.py"};
constexpr std::array kNativeTorch{"_jit_internal.py", "_logging/", "_opaque_base.py", "_vendor/", "library.py"};

const std::string& standard_library() {
  static const std::string folder = [] {
    const py::Ref module = py::Ref::steal(PyImport_ImportModule("abc"));
    const py::Ref file = py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "__file__") : nullptr);
    const char* text = file ? PyUnicode_AsUTF8(file.get()) : nullptr;
    PyErr_Clear();
    const std::string path = text == nullptr ? "" : text;
    return path.substr(0, path.rfind('/') + 1);
  }();
  return folder;
}

template <typename Names>
bool lies_in(std::string_view file, const std::string& folder, const Names& names) {
  if (folder.empty() || !file.starts_with(folder)) return false;
  file.remove_prefix(folder.size());
  for (const std::string_view name : names) {
    if (file.starts_with(name)) return true;
  }
  return false;
}

struct ConstantAnswer {
  const char* module;
  const char* function;
  bool answer;
};
constexpr std::array kAnswers{
    ConstantAnswer{"torch.compiler", "is_compiling", true},
    ConstantAnswer{"torch.compiler", "is_dynamo_compiling", true},
    ConstantAnswer{"torch._dynamo", "is_compiling", true},
    ConstantAnswer{"torch._utils_internal", "is_compiling", true},
    ConstantAnswer{"torch.jit", "is_tracing", false},
    ConstantAnswer{"torch.jit", "is_scripting", false},
    ConstantAnswer{"torch._C", "_get_tracing_state", false},
};

/// Functions whose effect comes after the trace or would be lost in it: better refused than left out silently.
struct Refusal {
  const char* module;
  const char* function;  ///< a path of attributes
  const char* what;      ///< what is not supported, and what to do
};
constexpr std::array kRefusals{
    Refusal{"torch.autograd", "grad", "torch.autograd.grad: call it outside, on what the jitted function returns"},
    Refusal{"torch.autograd", "backward", "backward(): call it outside, on what the jitted function returns"},
    Refusal{"torch", "Tensor.register_hook", "Tensor.register_hook: register hooks on what goes in or comes out"},
    Refusal{"torch", "Tensor.register_post_accumulate_grad_hook",
            "Tensor.register_post_accumulate_grad_hook: register it before the call"},
    Refusal{"torch.utils.hooks", "BackwardHook.setup_input_hook",
            "full backward hooks of modules: remove the hook, or leave the module that has it out of the jitted one"},
    Refusal{"torch.utils.hooks", "BackwardHook.setup_output_hook",
            "full backward hooks of modules: remove the hook, or leave the module that has it out of the jitted one"},
    Refusal{"torch", "manual_seed", "torch.manual_seed: seed before the call"},
    Refusal{"torch", "Generator", "torch.Generator(): make it outside, and pass it or keep it in a variable"},
    Refusal{"torch", "set_rng_state", "torch.set_rng_state: set it before the call"},
};

py::Ref loaded_function(const char* module_name, std::string_view path) {
  // Only what the program can have imported already: looking it up must not import half of torch.
  PyObject* modules = PyImport_GetModuleDict();
  py::Ref found = py::Ref::share(PyDict_GetItemString(modules, module_name));
  while (found && !path.empty()) {
    const std::size_t end = std::min(path.find('.'), path.size());
    found = py::Ref::steal(PyObject_GetAttrString(found.get(), std::string(path.substr(0, end)).c_str()));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  PyErr_Clear();
  return found;
}

// `checkpoint(function, *args, use_reentrant=…, …)`: recomputation is decided on the trace, not here.
int call_checkpointed(PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
  static PyObject* const own = PySet_New(nullptr);
  static const bool filled = [] {
    for (const char* name :
         {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"}) {
      const py::Ref text = py::Ref::steal(PyUnicode_InternFromString(name));
      PySet_Add(own, text.get());
    }
    return true;
  }();
  if (!filled || count == 0) return 0;
  py::Ref positional = py::Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(count - 1)));
  py::Ref keywords = py::Ref::steal(PyDict_New());
  if (!positional || !keywords) return -1;
  for (std::size_t i = 1; i < count; ++i) {
    PyTuple_SET_ITEM(positional.get(), static_cast<Py_ssize_t>(i - 1), Py_NewRef(arguments[i]));
  }
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    if (PySet_Contains(own, name) == 1) continue;
    if (PyDict_SetItem(keywords.get(), name, arguments[count + static_cast<std::size_t>(i)]) < 0) return -1;
  }
  *result = PyObject_Call(arguments[0], positional.get(), keywords.get());
  return *result == nullptr ? -1 : 1;
}

}  // namespace

Treatment treatment_of(PyCodeObject* code) {
  const char* name = PyUnicode_AsUTF8(code->co_filename);
  if (name == nullptr) {
    PyErr_Clear();
    return Treatment::kInterpret;
  }
  const std::string_view file = name;
  if (file.starts_with("<frozen importlib")) return Treatment::kNative;
  const bool is_native =
      lies_in(file, standard_library(), kNativeLibrary) || lies_in(file, torch_folder(), kNativeTorch);
  return is_native ? Treatment::kNative : Treatment::kInterpret;
}

void add_substitutes(interpreter::TrackerOptions& options) {
  for (const ConstantAnswer& row : kAnswers) {
    const py::Ref function = loaded_function(row.module, row.function);
    if (!function) continue;
    const bool is_state = std::string_view(row.function) == "_get_tracing_state";
    options.substitutes[function.get()] = [answer = row.answer, is_state](PyObject* const*, std::size_t, PyObject*,
                                                                          PyObject** result) {
      *result = Py_NewRef(is_state ? Py_None : answer ? Py_True : Py_False);
      return 1;
    };
  }
  for (const Refusal& row : kRefusals) {
    const py::Ref function = loaded_function(row.module, row.function);
    if (!function) continue;
    options.substitutes[function.get()] = [what = row.what](PyObject* const*, std::size_t, PyObject*, PyObject**) {
      PyErr_Format(PyExc_NotImplementedError, "thunder.jit: not supported inside a jitted function: %s", what);
      return -1;
    };
  }
  if (const py::Ref checkpoint = loaded_function("torch.utils.checkpoint", "checkpoint")) {
    options.substitutes[checkpoint.get()] = call_checkpointed;
  }
}

}  // namespace thunder::dispatch
