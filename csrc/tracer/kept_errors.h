#pragma once

#include "ir/trace.h"

namespace thunder::tracer {

/// Has operations of the program whose kernels may raise an error for the data run even where nothing needs their
/// results: the program, or who calls it, may wait for the error (a Cholesky decomposition in a `try`). Throws
/// UserError for one whose kernel raises an error for types that its meta kernel lets pass.
void keep_errors(ir::Trace& trace);

}  // namespace thunder::tracer
