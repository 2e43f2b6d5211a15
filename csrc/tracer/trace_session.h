#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace thunder::dispatch {
class CustomFunctions;
}
namespace thunder::transforms {
class ClaimScope;
}

namespace thunder::tracer {

class RealizeScope;
class Recording;
class SizeReads;

/// Whether one of the calls of a composite has been found that autocast casts for.
enum class AutocastSearch : std::uint8_t { kOff, kRunning, kFound };

/// All that decides, besides the program, how operations are traced on a thread. Scopes set a member and put back what
/// it was. Those of layers above are opaque here.
struct TraceSession {
  Recording* top = nullptr;                           ///< recorder of the innermost `RecordTop`
  Recording* bottom = nullptr;                        ///< recorder of the innermost `RecordBottom`
  int call_depth = 0;                                 ///< calls that are being recorded inside of each other
  std::string refusal;                                ///< message of a refusal since `take_refusal`
  bool raised_for_data = false;                       ///< see `take_raised_for_data`
  std::vector<at::Tensor>* known_contents = nullptr;  ///< see known_contents.h
  AutocastSearch autocast_search = AutocastSearch::kOff;
  const RealizeScope* realize = nullptr;
  /// Tensors that the compiled segments of an earlier attempt gave for this data, by value of the program's trace;
  /// undefined: not known.
  std::span<const at::Tensor> computed{};
  const transforms::ClaimScope* claims = nullptr;
  bool counts_from_tensors = false;  ///< see composites.h
  bool are_errors_observed = false;  ///< see observed_errors.h
  SizeReads* size_reads = nullptr;   ///< null: the program is traced for one size
  bool is_capturing = false;         ///< a jitted function is called to be traced
  const void* overrides = nullptr;   ///< its module's: see dispatch/call/overrides.h
  dispatch::CustomFunctions* custom_functions = nullptr;

  /// The session of this thread.
  [[nodiscard]] static TraceSession& current();
};

/// Takes the message of the last refusal on this thread, empty for none: a program that catches the exception has seen
/// what eager code would not.
[[nodiscard]] std::string take_refusal();
void note_refusal(std::string what);
/// Whether a kernel has raised an error for data of this call since the last time: calls like it may raise none.
[[nodiscard]] bool take_raised_for_data();

}  // namespace thunder::tracer
