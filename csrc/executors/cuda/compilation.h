#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace thunder::executors::cuda {

/// A compiled text: its functions, on the device that it was loaded for.
class Module {
 public:
  virtual ~Module() = default;
  /// Registers of each thread of a function; nullopt: they are not known.
  [[nodiscard]] virtual std::optional<int> registers(const std::string& /*function*/) const { return std::nullopt; }
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
};

/// A module that a worker thread compiles. Thread-safe.
class Compilation {
 public:
  using Compile = std::function<std::shared_ptr<const Module>()>;
  Compilation(std::string text, Compile compile) : text_(std::move(text)), compile_(std::move(compile)) {}

  [[nodiscard]] const std::string& text() const { return text_; }
  /// null: it is not compiled yet, or could not be.
  [[nodiscard]] const Module* module() const {
    return state_.load(std::memory_order_acquire) == State::kReady ? module_.get() : nullptr;
  }
  /// null: it is not compiled yet, or is.
  [[nodiscard]] std::exception_ptr error() const {
    return state_.load(std::memory_order_acquire) == State::kFailed ? error_ : nullptr;
  }
  /// It is compiled, or could not be.
  [[nodiscard]] bool is_settled() const {
    const State state = state_.load(std::memory_order_acquire);
    return state == State::kReady || state == State::kFailed;
  }
  /// Compiles it, unless another thread has begun to.
  void run();
  /// Compiles it, or waits for the thread that does.
  void wait();

 private:
  enum class State { kRequested, kRunning, kReady, kFailed };

  const std::string text_;
  std::atomic<State> state_ = State::kRequested;
  Compile compile_;
  std::shared_ptr<const Module> module_;
  std::exception_ptr error_;
};

}  // namespace thunder::executors::cuda
