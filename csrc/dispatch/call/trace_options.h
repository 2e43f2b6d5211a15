#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace thunder::dispatch {

/// How a program is treated that does something beyond its objects: opens files, reads clocks, prints.
enum class SharpEdges : std::uint8_t {
  kExact,  ///< as in eager at each call: what can be repeated is, by compiled code; anything else is refused
  kAllow,  ///< it happens while the program is traced, and not at later calls
  kWarn,   ///< like kAllow, with a warning
  kError,
};

/// Which sizes of tensors are symbols, so that one program is for many.
enum class DynamicSizes : std::uint8_t {
  kNone,    ///< all are numbers
  kMarked,  ///< those that `thunder.mark_dynamic` names, and those that were met with another value
  kAll,     ///< those of the call's arguments, but for what `thunder.mark_static` names, and ints as above
};

class SizeHistory;

/// How a callable is traced.
struct TraceOptions {
  bool full_graph = false;       ///< Python that depends on data is an error
  bool observes_errors = false;  ///< see tracer/observed_errors.h
  SharpEdges sharp_edges = SharpEdges::kExact;
  DynamicSizes dynamic = DynamicSizes::kMarked;
  SizeHistory* sizes = nullptr;            ///< as earlier traces saw them; null: nothing is made of that
  std::span<const at::Tensor> computed{};  ///< see `tracer::TraceSession`
};

}  // namespace thunder::dispatch
