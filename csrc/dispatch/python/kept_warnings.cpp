#include "dispatch/python/kept_warnings.h"

#include <torch/csrc/Exceptions.h>

#include <utility>

namespace thunder::dispatch {

void KeptWarnings::tell() {
  if (kept_.empty()) return;
  const torch::PyWarningHandler python;
  for (const c10::Warning& warning : std::exchange(kept_, {})) c10::warn(warning);
}

}  // namespace thunder::dispatch
