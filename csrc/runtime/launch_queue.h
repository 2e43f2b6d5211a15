#pragma once

#include <atomic>

namespace thunder::runtime {

/// Kernels of a program that wait to be launched together, which takes less of the processor's time than one after the
/// other. One thread at a time may put kernels into it.
class LaunchQueue {
 public:
  virtual ~LaunchQueue() = default;
  LaunchQueue() = default;
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;

  /// Launches what waits, in its order.
  virtual void flush() = 0;
  /// A run of the program begins.
  virtual void begin() = 0;

  /// While alive, kernels that this thread launches wait in a queue. They do not where there is none, or another thread
  /// has it: a program may run on several threads at once.
  class Scope {
   public:
    explicit Scope(LaunchQueue* queue) : before_(current_), queue_(take(queue)) {
      current_ = queue_;
      if (queue_ != nullptr) queue_->begin();
    }
    /// Whatever has been done before an error is done.
    ~Scope() {
      try {
        flush();
      } catch (...) {  // another error is under way
      }
      current_ = before_;
      if (queue_ != nullptr) queue_->is_taken_.clear(std::memory_order_release);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    [[nodiscard]] bool is_open() const { return queue_ != nullptr; }
    void flush() {
      if (queue_ != nullptr) queue_->flush();
    }

   private:
    static LaunchQueue* take(LaunchQueue* queue) {
      return queue != nullptr && !queue->is_taken_.test_and_set(std::memory_order_acquire) ? queue : nullptr;
    }

    LaunchQueue* const before_;
    LaunchQueue* const queue_;
  };

  /// That of the innermost program that this thread runs; null: kernels are launched at once.
  [[nodiscard]] static LaunchQueue* current() { return current_; }

 private:
  static thread_local LaunchQueue* current_;
  std::atomic_flag is_taken_;
};

}  // namespace thunder::runtime
