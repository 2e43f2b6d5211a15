#pragma once

#include <string>

// ATen/functorch/Interpreter.h includes this header, which PyTorch's packages do not ship, for functions that write an
// interpreter as text. Nobody here calls them: declarations are enough.
namespace nlohmann {
struct json {
  json() = default;
  template <typename T>
  explicit json(const T& value);
  [[nodiscard]] std::string dump() const;
  static json parse(const std::string& text);
  template <typename T>
  [[nodiscard]] T get() const;
};
}  // namespace nlohmann
