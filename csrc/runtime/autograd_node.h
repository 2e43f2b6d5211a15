#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/program.h"

namespace thunder::runtime {

/// A value that the forward program hands to the backward program.
struct SavedValue {
  enum class Kind : std::uint8_t {
    kPlain,     ///< memory of its own, which nobody else can write to
    kVariable,  ///< an input, or a tensor sharing memory with an input or an output: watched for writes
    kOutput,    ///< the output `index`, watched for writes
  };
  static constexpr std::uint32_t kNone = 0xffffffffU;

  Kind kind = Kind::kPlain;
  std::uint32_t index = kNone;
  std::uint32_t shares_input = kNone;  ///< of a kVariable made by the program: whose memory it shares
  std::uint32_t shares_output = kNone;
};

/// A forward and a backward program. `forward` returns the outputs, then the saved values; `backward` takes the saved
/// values, then a cotangent for each output that takes one, and returns a gradient or None for each input of `forward`.
struct DifferentiableProgram {
  enum class Output : std::uint8_t {
    kConstant,        ///< has no gradient
    kDifferentiable,  ///< its cotangent is the next input of the backward program
    kInput,           ///< is an input: returned as it came. Takes a cotangent as well, which never comes
  };
  struct OutputInfo {
    Output kind = Output::kConstant;
    bool takes_cotangent = false;
    std::uint32_t shares_input = SavedValue::kNone;
    std::vector<std::int64_t> cotangent_strides{};  ///< as recorded: others are copied to these; empty: any do
  };

  Program forward;
  Program backward;
  std::vector<OutputInfo> outputs;
  std::vector<SavedValue> saved;
  std::vector<std::uint32_t> differentiable_inputs;
  /// [k][c]: the gradient of `differentiable_inputs[k]` follows from cotangent c. Where none of these comes, there is
  /// no gradient, rather than zeros. Empty: each follows from all.
  std::vector<std::vector<bool>> follows;
};

/// Runs the forward program and hangs its outputs in PyTorch's autograd graph by one node that runs the backward
/// program. Inputs written to after the forward are detected as in eager. The gradients cannot be differentiated again:
/// doing so raises an error.
[[nodiscard]] std::vector<at::Tensor> run_with_autograd(const std::shared_ptr<const DifferentiableProgram>& program,
                                                        std::vector<at::Tensor> inputs);

}  // namespace thunder::runtime
