#include "dispatch/options.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "dispatch/python/python_transform.h"

namespace thunder::dispatch {
namespace {

bool read_text(PyObject* value, std::string_view option, std::string* text) {
  const char* content = value != nullptr && PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
  if (content == nullptr) {
    PyErr_Format(PyExc_TypeError, "thunder.jit: %s: expected a string", std::string(option).c_str());
    return false;
  }
  *text = content;
  return true;
}

/// Names among `known`; nullopt with a Python exception set.
std::optional<std::vector<std::string>> read_names(PyObject* given, const char* option,
                                                   const std::vector<std::string>& known) {
  const py::Ref items = py::Ref::steal(PySequence_Fast(given, "thunder.jit: expected a list of names"));
  if (!items) return std::nullopt;
  std::vector<std::string> names;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    std::string name;
    if (!read_text(PySequence_Fast_GET_ITEM(items.get(), i), option, &name)) return std::nullopt;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string list;
      for (const std::string& candidate : known) list += (list.empty() ? "" : ", ") + candidate;
      PyErr_Format(PyExc_ValueError, "thunder.jit: %s: expected some of %s, got '%s'", option, list.c_str(),
                   name.c_str());
      return std::nullopt;
    }
    names.push_back(std::move(name));
  }
  return names;
}

/// Names, and capsules of `thunder.extend`'s executors.
bool read_executors(PyObject* given, compile::Options* options) {
  if (given == nullptr || given == Py_None) return true;
  const py::Ref items = py::Ref::steal(PySequence_Fast(given, "thunder.jit: expected a list of executors"));
  if (!items) return false;
  options->executors.clear();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (PyCapsule_IsValid(item, kExecutorCapsule) != 0) {
      options->executors.push_back(
          static_cast<const executors::Executor*>(PyCapsule_GetPointer(item, kExecutorCapsule)));
      continue;
    }
    std::string name;
    if (!read_text(item, "executors", &name)) return false;
    try {
      options->executors.push_back(compile::find_executor(name));
    } catch (const UserError& error) {
      PyErr_Format(PyExc_ValueError, "thunder.jit: %s", error.what());
      return false;
    }
  }
  return true;
}

bool read_transforms(PyObject* given, compile::Options* options) {
  const py::Ref items = py::Ref::steal(given == nullptr ? PyTuple_New(0) : PySequence_Fast(given, "expected a list"));
  for (Py_ssize_t i = 0; items && i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    auto transform = make_transform(PySequence_Fast_GET_ITEM(items.get(), i));
    if (transform == nullptr) return false;
    options->transforms.push_back(std::move(transform));
  }
  return static_cast<bool>(items);
}

bool read_passes(PyObject* names, compile::Options* options) {
  if (names == nullptr || names == Py_None) return true;
  const std::vector<std::string> known = compile::pass_names();
  const auto chosen = read_names(names, "passes", known);
  if (!chosen) return false;
  std::ranges::copy_if(known, std::back_inserter(options->disabled_passes),
                       [&](const std::string& name) { return std::ranges::find(*chosen, name) == chosen->end(); });
  return true;
}

std::optional<CacheMode> read_cache_mode(PyObject* value) {
  std::string text = "constant values";
  if (value != nullptr && !read_text(value, "cache", &text)) return std::nullopt;
  if (text == "constant values" || text == "symbolic values") return CacheMode::kConstantValues;
  if (text == "same input") return CacheMode::kSameInput;
  if (text == "no caching") return CacheMode::kNoCaching;
  PyErr_Format(
      PyExc_ValueError,
      "thunder.jit: cache: expected 'constant values', 'symbolic values', 'same input' or 'no caching', got '%s'",
      text.c_str());
  return std::nullopt;
}

std::optional<SharpEdges> read_sharp_edges(PyObject* value) {
  std::string text = "exact";
  if (value != nullptr && !read_text(value, "sharp_edges", &text)) return std::nullopt;
  if (text == "exact") return SharpEdges::kExact;
  if (text == "allow") return SharpEdges::kAllow;
  if (text == "warn") return SharpEdges::kWarn;
  if (text == "error") return SharpEdges::kError;
  PyErr_Format(PyExc_ValueError, "thunder.jit: sharp_edges: expected 'exact', 'allow', 'warn' or 'error', got '%s'",
               text.c_str());
  return std::nullopt;
}

}  // namespace

std::optional<DispatchOptions> read_options(PyObject* options) {
  DispatchOptions result;
  if (options == nullptr) return result;
  if (!read_executors(PyDict_GetItemString(options, "executors"), &result.compile)) return std::nullopt;
  result.compile.executors = compile::with_fallback(std::move(result.compile.executors));
  if (!read_transforms(PyDict_GetItemString(options, "transforms"), &result.compile)) return std::nullopt;
  if (!read_passes(PyDict_GetItemString(options, "passes"), &result.compile)) return std::nullopt;
  if (PyObject* rematerialize = PyDict_GetItemString(options, "rematerialize")) {
    using passes::Recompute;
    result.compile.rematerialize = rematerialize == Py_True    ? Recompute::kFast
                                   : rematerialize == Py_False ? Recompute::kNothing
                                                               : Recompute::kMemory;
  }
  if (PyObject* graphs = PyDict_GetItemString(options, "cuda_graphs")) {
    using compile::CudaGraphs;
    result.compile.cuda_graphs = graphs == Py_None   ? CudaGraphs::kSmall
                                 : graphs == Py_True ? CudaGraphs::kAll
                                                     : CudaGraphs::kNone;
  }
  if (PyObject* prepack = PyDict_GetItemString(options, "prepack_weights")) {
    result.compile.prepack_weights = prepack == Py_True;
  }
  const std::optional<CacheMode> cache = read_cache_mode(PyDict_GetItemString(options, "cache"));
  if (!cache) return std::nullopt;
  result.cache = *cache;
  const std::optional<SharpEdges> edges = read_sharp_edges(PyDict_GetItemString(options, "sharp_edges"));
  if (!edges) return std::nullopt;
  result.trace.sharp_edges = *edges;
  PyObject* full_graph = PyDict_GetItemString(options, "fullgraph");
  result.trace.full_graph = full_graph != nullptr && PyObject_IsTrue(full_graph) == 1;
  if (PyObject* dynamic = PyDict_GetItemString(options, "dynamic"); dynamic != nullptr && dynamic != Py_None) {
    result.trace.dynamic = dynamic == Py_True ? DynamicSizes::kAll : DynamicSizes::kNone;
  }
  PyObject* cache_name = PyDict_GetItemString(options, "cache");
  const bool is_symbolic = cache_name != nullptr && PyUnicode_Check(cache_name) &&
                           PyUnicode_CompareWithASCIIString(cache_name, "symbolic values") == 0;
  if (is_symbolic && result.trace.dynamic == DynamicSizes::kMarked) result.trace.dynamic = DynamicSizes::kAll;
  if (PyObject* mode = PyDict_GetItemString(options, "compile")) {
    std::string text;
    if (!read_text(mode, "compile", &text)) return std::nullopt;
    result.compile.background = text == "background";
  }
  return result;
}

}  // namespace thunder::dispatch
