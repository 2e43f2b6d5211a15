#pragma once

#include <cstdint>

namespace thunder::dispatch {

/// What happens when the program does something that happens while it is traced, and not at later calls.
enum class SharpEdges : std::uint8_t { kAllow, kWarn, kError };

/// How a callable is traced.
struct TraceOptions {
  bool full_graph = false;  ///< Python that depends on data is an error
  SharpEdges sharp_edges = SharpEdges::kAllow;
};

}  // namespace thunder::dispatch
