#pragma once

#include <vector>

#include "interpreter/provenance/tracker.h"
#include "interpreter/structures/structure_builder.h"

namespace thunder::dispatch {

/// Variables of `contextvars` from outside that the program sets, as settings of PyTorch's that are kept in them. They
/// are set while it is traced, and put back then. Each call sets those that the program leaves changed.
class ContextVariables {
 public:
  explicit ContextVariables(interpreter::Tracker& tracker) : tracker_(tracker) {}

  /// While alive, the program may set variables; then all are as they were.
  class Scope {
   public:
    explicit Scope(ContextVariables& variables) : variables_(variables) { variables_.begin(); }
    ~Scope() { variables_.restore(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ContextVariables& variables_;
  };

  /// By the convention of `Observer::before_native_call`; 0: it sets or asks no variable that is followed.
  int intercept(const interpreter::NativeCall& call, PyObject** result);
  /// False with an exception set.
  bool add_effects(interpreter::StructureBuilder& builder);

 private:
  /// A call of `set`.
  struct Set {
    py::Ref variable;
    py::Ref token;
    py::Ref before;  ///< null: the variable had no value
    bool is_over = false;
  };

  void begin();
  void restore();
  [[nodiscard]] bool is_own(py::Borrowed variable) const;
  int set(py::Borrowed variable, PyObject* value, PyObject** result);
  int reset(py::Borrowed variable, PyObject* token, PyObject** result);

  interpreter::Tracker& tracker_;
  std::vector<Set> sets_;
  PyObject* context_ = nullptr;  ///< the one of the call; borrowed
};

}  // namespace thunder::dispatch
