#pragma once

#include <utility>

namespace thunder::transforms {

/// While alive, derivatives that this thread takes are for many sizes: rules that hold for all of them do not decide by
/// how large a tensor is.
class ManySizes {
 public:
  ManySizes() : before_(std::exchange(current(), true)) {}
  ~ManySizes() { current() = before_; }
  ManySizes(const ManySizes&) = delete;
  ManySizes& operator=(const ManySizes&) = delete;
  [[nodiscard]] static bool are_on() { return current(); }

 private:
  static bool& current() {
    thread_local bool is_on = false;
    return is_on;
  }
  bool before_;
};

}  // namespace thunder::transforms
