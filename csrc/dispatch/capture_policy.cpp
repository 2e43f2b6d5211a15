#include "dispatch/capture_policy.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "dispatch/capture/substitutes.h"
#include "dispatch/functional.h"
#include "dispatch/python/source_files.h"
#include "tracer/trace_session.h"

namespace thunder::dispatch {
namespace {

using interpreter::Treatment;

// Folders and files, below the standard library or the torch package, whose functions CPython runs by itself: they
// do nothing to a tensor of the trace, and nothing that they read decides what the program computes. What they call of
// the program is interpreted.
constexpr std::array kNativeLibrary{"abc.py",      "enum.py",      "inspect.py",    "linecache.py", "logging/",
                                    "re/",         "re.py",        "tokenize.py",   "traceback.py", "typing.py",
                                    "warnings.py", "sre_parse.py", "sre_compile.py"};
// Those below which nothing is interpreted, not even functions of the program: a module that is imported for the first
// time stays loaded, whatever becomes of the trace.
constexpr std::array kUnobservedLibrary{"importlib/"};
constexpr std::array kNativeTorch{"_jit_internal.py", "_logging/", "_opaque_base.py", "_vendor/", "library.py"};

/// A function in Python, by the file and the name of its code.
struct FunctionInFile {
  std::string_view file;
  const char* function;
};
/// Functions of the standard library, in such files, that look at what an object consists of, or hand it on.
constexpr std::array kLooking{
    FunctionInFile{"typing.py", "cast"},
    FunctionInFile{"typing.py", "NamedTuple"},
    FunctionInFile{"typing.py", "_make_nmtuple"},
    FunctionInFile{"typing.py", "__call__"},  // a generic class with parameters makes an instance
    FunctionInFile{"re/__init__.py", "sub"},  // `repl` may be a function of the program
    FunctionInFile{"re/__init__.py", "subn"},
    FunctionInFile{"re.py", "sub"},
    FunctionInFile{"re.py", "subn"},
    FunctionInFile{"re/__init__.py", "scan"},  // a Scanner calls functions of the program
    FunctionInFile{"re.py", "scan"},
    FunctionInFile{"inspect.py", "getattr_static"},
    FunctionInFile{"inspect.py", "_check_instance"},
    FunctionInFile{"inspect.py", "_check_class"},
    FunctionInFile{"inspect.py", "getclosurevars"},
    FunctionInFile{"inspect.py", "<dictcomp>"},  // in `getclosurevars`
    FunctionInFile{"inspect.py", "getmembers"},
    FunctionInFile{"inspect.py", "getmembers_static"},
    FunctionInFile{"inspect.py", "_getmembers"},
    FunctionInFile{"typing.py", "__instancecheck__"},
    FunctionInFile{"typing.py", "<genexpr>"},
    FunctionInFile{"traceback.py", "format_exc"},  // the caller may handle the exception
    FunctionInFile{"traceback.py", "print_exc"},
};
/// Functions of the torch package that keep books of their own about what the program makes.
constexpr std::array kBookkeeping{
    FunctionInFile{"_ops.py", "__getattr__"},  // `torch.ops.namespace.operator` is made when it is first looked up
    FunctionInFile{"autograd/function.py",
                   "__init__"},  // the metaclass of `torch.autograd.Function` counts the classes
    // Once torch.compile was used, every module that is made is registered, by address, until it dies.
    FunctionInFile{"_dynamo/mutation_guard.py", "tag"},
    FunctionInFile{"_dynamo/utils.py", "_remove_id"},
};

/// Gives handles of hooks, which are numbered through, their numbers.
constexpr std::array kHookCounting{FunctionInFile{"utils/hooks.py", "__init__"}};

const std::string& standard_library() {
  static const std::string folder = [] {
    const py::Ref module = py::Ref::steal(py::import_module("abc"));
    const py::Ref file = py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "__file__") : nullptr);
    const char* text = file ? PyUnicode_AsUTF8(file.get()) : nullptr;
    PyErr_Clear();
    const std::string path = text == nullptr ? "" : text;
    return path.substr(0, path.rfind('/') + 1);
  }();
  return folder;
}

bool is_among(std::span<const FunctionInFile> functions, const std::string& folder, PyCodeObject* code,
              std::string_view file) {
  return file.starts_with(folder) && std::ranges::any_of(functions, [&](const FunctionInFile& row) {
           return file.substr(folder.size()) == row.file &&
                  PyUnicode_CompareWithASCIIString(code->co_name, row.function) == 0;
         });
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
  const char* what;      ///< the feature that is not supported, and what to do instead
};
constexpr std::array kRefusals{
    Refusal{"torch", "Tensor.__reduce_ex__", "pickling of tensors: do it outside"},
    Refusal{"torch", "Tensor._is_view", "Tensor._is_view: call it outside"},
    Refusal{"torch", "Tensor._use_count", "Tensor._use_count: call it outside"},
    Refusal{"torch", "Tensor.data_ptr", "Tensor.data_ptr: call it outside"},
    Refusal{"torch", "Tensor.is_set_to", "Tensor.is_set_to: call it outside"},
    Refusal{"torch", "Tensor.untyped_storage", "the storage of a tensor: use it outside"},
    Refusal{"torch", "_C._data_address", "torch._C._data_address: call it outside"},
    Refusal{"torch", "_C._storage_id", "torch._C._storage_id: call it outside"},
    Refusal{"torch", "_C._tensor_impl_raw_handle", "torch._C._tensor_impl_raw_handle: call it outside"},
    Refusal{"inspect", "stack", "the frames of the callers: look at them outside"},
    Refusal{"inspect", "getouterframes", "the frames of the callers: look at them outside"},
    Refusal{"traceback", "extract_stack", "the frames of the callers: look at them outside"},
    Refusal{"traceback", "format_stack", "the frames of the callers: look at them outside"},
    Refusal{"traceback", "print_stack", "the frames of the callers: look at them outside"},
    Refusal{"_abc", "_abc_register", "a class that is registered with an abstract one: register it outside"},
    Refusal{"torch", "seed", "torch.seed: call it before, or use torch.manual_seed"},
    Refusal{"torch", "initial_seed", "torch.initial_seed: call it before"},
    Refusal{"torch", "Generator.seed", "Generator.seed: call it before, or use manual_seed"},
    Refusal{"torch", "Generator.initial_seed", "Generator.initial_seed: call it before"},
};

/// Has PyTorch make, once, what its functions otherwise make and keep in a global when one is first called: the second
/// call of a program would be traced again as that has changed.
void fill_lazy_globals() {
  // Without an initializer that runs Python: another thread would wait for its end with the GIL held.
  static bool is_filled = false;
  if (is_filled) return;
  const py::Ref function = loaded_function("torch.autograd.profiler", "_maybe_cupti_monitor");
  if (function) static_cast<void>(py::Ref::steal(PyObject_CallNoArgs(function.get())));
  PyErr_Clear();  // other versions of PyTorch have none
  is_filled = true;
}

/// Functions of PyTorch that ask whether objects have their own `__torch_function__`.
void add_asked_attributes(interpreter::TrackerOptions& options) {
  constexpr std::array kNames{"_C._has_torch_function", "_C._has_torch_function_unary",
                              "_C._has_torch_function_variadic"};
  const py::Ref attribute = py::Ref::steal(PyUnicode_InternFromString("__torch_function__"));
  for (const char* name : kNames) {
    const py::Ref function = loaded_function("torch", name);
    if (function) options.asked_attributes.emplace(interpreter::native_identity(function.get()), attribute);
  }
}

}  // namespace

bool is_library(PyObject* globals) {
  PyObject* file = PyDict_GetItemString(globals, "__file__");
  if (file == nullptr) {
    PyObject* spec = PyDict_GetItemString(globals, "__spec__");
    return spec != nullptr && spec != Py_None;
  }
  const char* name = PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : nullptr;
  if (name == nullptr) {
    PyErr_Clear();
    return false;
  }
  const std::string_view path = name;
  const bool is_installed = path.find("/site-packages/") != std::string_view::npos;
  return path.starts_with(torch_folder()) || (path.starts_with(standard_library()) && !is_installed);
}

Treatment treatment_of(PyCodeObject* code, bool counts_hooks) {
  const char* name = PyUnicode_AsUTF8(code->co_filename);
  if (name == nullptr) {
    PyErr_Clear();
    return Treatment::kInterpret;
  }
  const std::string_view file = name;
  if (file.starts_with("<frozen importlib") || lies_in(file, standard_library(), kUnobservedLibrary)) {
    return Treatment::kUnobserved;
  }
  // A function made by `boolean_dispatch`, such as `adaptive_max_pool1d`, only calls one of two others.
  const bool is_dispatch =
      file.ends_with("/_jit_internal.py") && PyUnicode_CompareWithASCIIString(code->co_name, "fn") == 0;
  const bool looks_at_instances = is_among(kLooking, standard_library(), code, file);
  const bool is_native = (lies_in(file, standard_library(), kNativeLibrary) && !looks_at_instances) ||
                         lies_in(file, torch_folder(), kNativeTorch) ||
                         is_among(kBookkeeping, torch_folder(), code, file) ||
                         (!counts_hooks && is_among(kHookCounting, torch_folder(), code, file));
  if (is_native && !is_dispatch) return Treatment::kNative;
  return is_library_file(file) ? Treatment::kLibrary : Treatment::kInterpret;
}

void add_substitutes(interpreter::TrackerOptions& options) {
  fill_lazy_globals();
  for (const ConstantAnswer& row : kAnswers) {
    const py::Ref function = loaded_function(row.module, row.function);
    if (!function) continue;
    const bool is_state = std::string_view(row.function) == "_get_tracing_state";
    options.substitute(function.get(),
                       [answer = row.answer, is_state](PyObject* const*, std::size_t, PyObject*, PyObject** result) {
                         *result = Py_NewRef(is_state ? Py_None : answer ? Py_True : Py_False);
                         return 1;
                       });
  }
  for (const Refusal& row : kRefusals) {
    const py::Ref function = loaded_function(row.module, row.function);
    if (!function) continue;
    options.substitute(function.get(), [what = row.what](PyObject* const*, std::size_t, PyObject*, PyObject**) {
      tracer::note_refusal(std::string("thunder.jit: not supported inside a jitted function: ") + what);
      PyErr_Format(PyExc_NotImplementedError, "thunder.jit: not supported inside a jitted function: %s", what);
      return -1;
    });
  }
  add_asked_attributes(options);
  add_random_substitutes(options);
  add_tensor_substitutes(options);
  add_pickle_substitutes(options);
  add_array_substitutes(options);
  add_device_substitutes(options);
  add_functional_substitutes(options);
  add_higher_order_substitutes(options);
}

}  // namespace thunder::dispatch
