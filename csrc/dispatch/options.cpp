#include "dispatch/options.h"

#include <algorithm>
#include <string>
#include <string_view>

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

bool read_executors(PyObject* names, compile::Options* options) {
  if (names == nullptr || names == Py_None) return true;
  const py::Ref items = py::Ref::steal(PySequence_Fast(names, "thunder.jit: executors: expected a list of names"));
  if (!items) return false;
  options->executors.clear();
  const std::vector<std::string> known = compile::executor_names();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    std::string name;
    if (!read_text(PySequence_Fast_GET_ITEM(items.get(), i), "executors", &name)) return false;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string list;
      for (const std::string& executor : known) list += (list.empty() ? "" : ", ") + executor;
      PyErr_Format(PyExc_ValueError, "thunder.jit: executors: expected some of %s, got '%s'", list.c_str(),
                   name.c_str());
      return false;
    }
    options->executors.push_back(std::move(name));
  }
  return true;
}

std::optional<CacheMode> read_cache_mode(PyObject* value) {
  std::string text = "constant values";
  if (value != nullptr && !read_text(value, "cache", &text)) return std::nullopt;
  if (text == "constant values") return CacheMode::kConstantValues;
  if (text == "no caching") return CacheMode::kNoCaching;
  PyErr_Format(PyExc_ValueError, "thunder.jit: cache: expected 'constant values' or 'no caching', got '%s'",
               text.c_str());
  return std::nullopt;
}

}  // namespace

std::optional<DispatchOptions> read_options(PyObject* options) {
  DispatchOptions result;
  if (options == nullptr) return result;
  if (!read_executors(PyDict_GetItemString(options, "executors"), &result.compile)) return std::nullopt;
  const std::optional<CacheMode> cache = read_cache_mode(PyDict_GetItemString(options, "cache"));
  if (!cache) return std::nullopt;
  result.cache = *cache;
  PyObject* full_graph = PyDict_GetItemString(options, "fullgraph");
  result.full_graph = full_graph != nullptr && PyObject_IsTrue(full_graph) == 1;
  if (PyObject* mode = PyDict_GetItemString(options, "compile")) {
    std::string text;
    if (!read_text(mode, "compile", &text)) return std::nullopt;
    result.compile.background = text == "background";
  }
  return result;
}

}  // namespace thunder::dispatch
