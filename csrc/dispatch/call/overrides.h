#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <string>
#include <vector>

#include "dispatch/python/errors.h"
#include "interpreter/python/python_ref.h"
#include "ir/type.h"

namespace thunder::dispatch {

/// The parameters and buffers of a module that transforms replaced, or added others beside: what
/// `thunder.transforms.overrides` keeps with the module.
class Overrides {
 public:
  /// A new parameter or buffer, which programs get that take the one that it stands beside.
  struct Added {
    std::string name;
    std::string owner;  ///< the transform
    py::Ref place;      ///< where it stands in the module, as `take` wants it
    py::Ref tensor;
  };
  struct Entry {
    std::string name;
    std::string owner;             ///< the transform that replaced it; empty: none did
    std::vector<py::Ref> tensors;  ///< in the module now, one for each place that shared the original
    ir::TensorType seen;           ///< as programs see it; meaningless without an owner
    std::vector<Added> added;
    bool has_device = false;  ///< programs see it on another device than the tensor is on
  };

  /// Those of a module; none for any other callable. Throws PendingError.
  explicit Overrides(PyObject* module);

  /// The entry whose tensor this is, or null.
  [[nodiscard]] const Entry* find(const PyObject* tensor) const;
  /// The type of the stand-in of an entry's tensor: it requires grad where something behind it does.
  [[nodiscard]] static ir::TypePtr seen_type(const Entry& entry, const at::Tensor& real);

 private:
  std::vector<Entry> entries_;
};

/// The dict of a module's overrides (borrowed), which its copies by `copy.copy` share; null: there are none.
[[nodiscard]] PyObject* overrides_registry(PyObject* module);
/// Whether a callable is a module with overrides, which must not run as it is.
[[nodiscard]] bool has_overrides(PyObject* module);
/// `0.weight (Int8Weights())`: the first of them, for messages, and how many there are besides.
[[nodiscard]] std::string describe_overrides(PyObject* module);
/// A function of `thunder.transforms.overrides`; throws PendingError.
[[nodiscard]] py::Ref overrides_function(const char* name);

}  // namespace thunder::dispatch
