#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/graph_runner.h"
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
  std::uint32_t shares_input = kNone;  ///< for a kVariable made by the program: the input whose memory it shares
  std::uint32_t shares_output = kNone;
  /// The forward was given it.
  [[nodiscard]] bool is_input() const {
    return kind == Kind::kVariable && shares_input == kNone && shares_output == kNone;
  }
};

/// Which cotangents come, in the order of the outputs that take one.
using CotangentSet = std::vector<bool>;

/// How a backward wants a cotangent to lie in memory; both empty: it takes any.
struct CotangentLayout {
  std::vector<std::int64_t> strides;  ///< where they are known
  std::vector<std::size_t> order;     ///< otherwise: without gaps, the dimensions from the outermost on
};

/// The backward for one set of cotangents. The program takes the saved values that it reads, then the cotangents that
/// come, and returns a gradient or None for each input of the forward.
struct BackwardProgram {
  CotangentSet cotangents;
  std::vector<bool> reads;  ///< by saved value
  /// For each cotangent that comes: others are copied.
  std::vector<CotangentLayout> cotangent_layouts;
  Program program;
  GraphFacts graph{};  ///< whether it may be recorded
};

/// The backwards of a forward, each made when its set of cotangents first comes. Any thread may ask.
class BackwardPrograms {
 public:
  /// Called without the GIL, from any thread.
  using Make = std::function<std::shared_ptr<const BackwardProgram>(const CotangentSet& cotangents)>;
  /// Which gradients are differentiable, by input of the forward. `differentiable`: which of the cotangents are.
  using FindDifferentiable =
      std::function<std::vector<bool>(const CotangentSet& cotangents, const CotangentSet& differentiable)>;
  explicit BackwardPrograms(Make make, FindDifferentiable find_differentiable = nullptr)
      : make_(std::move(make)), find_differentiable_(std::move(find_differentiable)) {}

  [[nodiscard]] std::shared_ptr<const BackwardProgram> find(std::span<const at::Tensor> cotangents) const;
  /// Which gradients depend on something that requires grad, by input of the forward; empty: all may.
  [[nodiscard]] std::vector<bool> find_differentiable(std::span<const at::Tensor> cotangents) const;

 private:
  Make make_;
  FindDifferentiable find_differentiable_;
  mutable std::atomic<std::shared_ptr<const BackwardProgram>> last_;  ///< that ran: steps are alike
};

/// A forward program and what runs its backward. `forward` returns the outputs, then the saved values.
struct DifferentiableProgram {
  enum class Output : std::uint8_t {
    kConstant,        ///< has no gradient
    kDifferentiable,  ///< takes a cotangent
    kInput,           ///< is an input: returned as it came. Takes a cotangent as well, which never comes
  };
  struct OutputInfo {
    Output kind = Output::kConstant;
    bool takes_cotangent = false;
    std::uint32_t shares_input = SavedValue::kNone;
  };

  Program forward;
  std::vector<OutputInfo> outputs;
  std::vector<SavedValue> saved;
  std::vector<std::uint32_t> differentiable_inputs;
  /// Cotangents, by their numbers: the output of the first is one that the output of the second is computed from.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> feeds;
  std::unique_ptr<const BackwardPrograms> backwards;
};

}  // namespace thunder::runtime
