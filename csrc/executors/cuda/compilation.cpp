#include "executors/cuda/compilation.h"

#include <utility>

namespace thunder::executors::cuda {

void Compilation::run() {
  State expected = State::kRequested;
  if (!state_.compare_exchange_strong(expected, State::kRunning, std::memory_order_acquire)) return;
  State outcome = State::kReady;
  try {
    module_ = std::exchange(compile_, nullptr)();
  } catch (...) {
    error_ = std::current_exception();
    outcome = State::kFailed;
  }
  state_.store(outcome, std::memory_order_release);
  state_.notify_all();
}

void Compilation::wait() {
  run();
  state_.wait(State::kRunning, std::memory_order_acquire);
}

}  // namespace thunder::executors::cuda
