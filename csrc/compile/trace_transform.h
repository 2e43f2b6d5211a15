#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/trace.h"

namespace thunder::compile {

/// Where the values lie that a forward trace saves (among its outputs), or that a backward trace takes (its inputs).
struct SavedRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A tensor that the prologue of a call gives to the computation.
struct ProgramInput {
  static constexpr std::uint32_t kHeld = std::numeric_limits<std::uint32_t>::max();

  std::uint32_t source = kHeld;      ///< its number among the tensors that the guards find; kHeld: it is `tensor`
  at::Tensor tensor{};               ///< at the call that is compiled
  std::vector<std::string> names{};  ///< as a parameter or buffer of the module that is called
  ir::TypePtr type{};                ///< the type of `tensor`
  ir::TypePtr seen{};                ///< as the program saw it, where a transform replaced it; null: it saw `tensor`
  std::string owner{};               ///< the transform that brought it in and has to use it; empty: nobody has to
};

/// The traces of a call: the prologue returns, one by one, what the computation takes.
struct CallTraces {
  ir::Trace prologue;
  ir::Trace computation;
  ir::Trace epilogue;
  std::vector<ProgramInput> inputs{};  ///< by output of the prologue
  std::shared_ptr<void> module{};      ///< Python's, which is called
};

/// A rewrite of traces by the user, at two places of the compilation. Functions may be empty.
struct TraceTransform {
  std::string name;
  struct Call {
    ir::Trace prologue;
    ir::Trace computation;
    ir::Trace epilogue;
  };
  /// Gives the traces as they shall be, before the computation is differentiated. What the prologue returns may be
  /// removed, and constants added (`prims::tensor_constant`); the computation may return more, for the epilogue.
  std::function<Call(const CallTraces& traces)> pre_prologue;
  /// Gives the computation, forward or backward trace as it shall be, after all passes that change what is computed.
  std::function<ir::Trace(const ir::Trace& trace, SavedRange saved)> post_optimization;
  /// Sees what a trace, as it will run, says to other processes (`describe_collectives`), where that is anything.
  std::function<void(ir::TraceKind kind, const std::string& collectives)> check_collectives{};
  /// Is told, with the Python exception set, that a call could not be compiled.
  std::function<void()> note_failure{};
};

/// Both throw UserError, naming the transform and the symbol or input, when a trace that it made cannot run, takes what
/// the prologue does not return, or does not give what it did.
[[nodiscard]] CallTraces apply_pre_prologue(const TraceTransform& transform, CallTraces traces);
[[nodiscard]] ir::Trace apply_post_optimization(const TraceTransform& transform, const ir::Trace& trace,
                                                SavedRange saved);
/// After the last transform: requires that each tensor that a transform brought in is used, and gives inputs the
/// metadata of the tensors that come.
void finish_inputs(CallTraces& traces);
/// Forward and backward agree on what is saved.
void require_matching_saved(const TraceTransform& transform, const ir::Trace& forward, SavedRange in_forward,
                            const ir::Trace& backward, SavedRange in_backward);

}  // namespace thunder::compile
