#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>

#include "tracer/custom_gradient.h"
#include "tracer/recorder.h"
#include "tracer/trace_builder.h"

namespace thunder::tracer {

/// A part of the program whose values a later backward recomputes (`torch.utils.checkpoint`): from its creation to
/// `finish`. Random numbers are kept, so that they are drawn once.
class CheckpointRegion {
 public:
  /// `is_reentrant`: the variant whose backward runs a backward of its own, without a graph of it.
  CheckpointRegion(Recorder& recorder, bool is_reentrant);

  /// Gives these results of the part a backward that reads what the part read, and nothing that it made.
  void finish(std::span<const at::Tensor> results);

 private:
  using Values = std::unordered_set<std::uint32_t>;

  /// The values that the symbols from the beginning of the part up to `end` make.
  [[nodiscard]] Values values_made(std::size_t end) const;
  void finish_one(const at::Tensor& result);

  Recorder& recorder_;
  bool is_reentrant_;
  TraceBuilder::Mark begin_;  ///< the first symbol of the part
};

}  // namespace thunder::tracer
