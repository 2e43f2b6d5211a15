#pragma once

#include <Python.h>

#include <optional>

#include "compile/compiler.h"
#include "dispatch/call/specialization_cache.h"

namespace thunder::dispatch {

/// Name of the capsules that hold an `executors::Executor`.
inline constexpr const char* kExecutorCapsule = "thunder.Executor";

struct DispatchOptions {
  compile::Options compile;
  TraceOptions trace;
  CacheMode cache = CacheMode::kConstantValues;
};

/// Reads `thunder.Options.as_dict()` (null: defaults); nullopt with a Python exception set when a value is not known.
[[nodiscard]] std::optional<DispatchOptions> read_options(PyObject* options);

}  // namespace thunder::dispatch
