#pragma once

#include <c10/util/Exception.h>

#include <vector>

namespace thunder::dispatch {

/// Keeps the warnings of PyTorch's kernels that run on this thread while alive, until it is known that nobody runs the
/// program once more.
class KeptWarnings final : public c10::WarningHandler {
 public:
  KeptWarnings() = default;
  KeptWarnings(const KeptWarnings&) = delete;
  KeptWarnings& operator=(const KeptWarnings&) = delete;

  void process(const c10::Warning& warning) override { kept_.push_back(warning); }
  /// Gives them to Python's `warnings`, as PyTorch does for what it calls. Throws where one is an error there.
  void tell();

 private:
  std::vector<c10::Warning> kept_;
  c10::WarningUtils::WarningHandlerGuard handler_{this};
};

}  // namespace thunder::dispatch
