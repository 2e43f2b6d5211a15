#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace thunder::runtime {

struct DifferentiableProgram;
struct BackwardProgram;

/// Facts that decide whether a program may be recorded as a CUDA graph, which launches the same kernels on the same
/// addresses each time.
struct GraphFacts {
  std::string obstacle{};       ///< why it may not be; empty: it may
  std::vector<bool> written{};  ///< by input: the program writes to its memory
  std::int64_t bytes = 0;       ///< size of all results: no more than this is kept for the graph
  int launches = 0;             ///< operations, and blocks of them, that launch kernels
};

/// Runs a differentiable program as CUDA graphs. Any thread may call, without the GIL. What a method answers with false
/// is to run as it is: nothing has been done then.
class GraphRunner {
 public:
  /// Held as long as the saved values of a forward are needed, which lie in memory of its graph; null: they do not.
  using Hold = std::shared_ptr<const void>;

  virtual ~GraphRunner() = default;
  [[nodiscard]] virtual bool run_forward(const DifferentiableProgram& program, std::span<const c10::IValue> inputs,
                                         std::span<c10::IValue> results, Hold& hold) = 0;
  [[nodiscard]] virtual bool run_backward(const BackwardProgram& program, std::span<const c10::IValue> inputs,
                                          std::span<c10::IValue> results, const Hold& hold) = 0;
  /// Records nothing any more. Saved values stay as they are.
  virtual void retire(const std::string& reason) = 0;
};

}  // namespace thunder::runtime
