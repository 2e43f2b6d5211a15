#pragma once

#include "base/error.h"
#include "tracer/fallback.h"
#include "tracer/operators.h"

namespace thunder::check {

/// The operator as traces call it.
inline const ir::Operator& find(const char* name, const char* overload = "") {
  tracer::init_tracer();
  const ir::Operator* op = tracer::find_operator(name, overload);
  THUNDER_CHECK(op != nullptr, "test", name);
  return *op;
}

}  // namespace thunder::check
