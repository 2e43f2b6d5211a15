#pragma once

#include <exception>

namespace thunder::runtime {

/// A program observed a number or shape other than the one that its trace was specialized on. It has written nothing.
struct ValueChanged : std::exception {
  [[nodiscard]] const char* what() const noexcept override {
    return "a value differs from the one observed while tracing";
  }
};

}  // namespace thunder::runtime
