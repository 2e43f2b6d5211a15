#pragma once

#include <Python.h>

#include <cstddef>
#include <utility>

namespace thunder::py {

/// A reference that somebody else keeps alive.
using Borrowed = PyObject*;

/// An owned reference, or null. Copies, moves and dies under the GIL.
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  Ref(const Ref& other) : object_(Py_XNewRef(other.object_)) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  /// Takes over a new reference.
  [[nodiscard]] static Ref steal(PyObject* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  /// Adds a reference.
  [[nodiscard]] static Ref share(Borrowed object) { return steal(Py_XNewRef(object)); }

  [[nodiscard]] Borrowed get() const { return object_; }
  [[nodiscard]] PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/// The module of this name (a new reference), or null with an exception. `PyImport_ImportModule` would ask the builtins
/// of the program's frame for an `__import__`, which may be another function, or missing.
[[nodiscard]] inline PyObject* import_module(const char* name) {
  const Ref key = Ref::steal(PyUnicode_FromString(name));
  if (!key) return nullptr;
  const Ref top = Ref::steal(PyImport_ImportModuleLevelObject(key.get(), nullptr, nullptr, nullptr, 0));
  if (!top) return nullptr;
  PyObject* module = PyImport_GetModule(key.get());
  if (module == nullptr && PyErr_Occurred() == nullptr)
    PyErr_Format(PyExc_ModuleNotFoundError, "no module %R", key.get());
  return module;
}

/// Keeps the pending Python exception aside while alive.
class SavedError {
 public:
  SavedError() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~SavedError() { PyErr_Restore(type_, value_, traceback_); }
  SavedError(const SavedError&) = delete;
  SavedError& operator=(const SavedError&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

}  // namespace thunder::py
