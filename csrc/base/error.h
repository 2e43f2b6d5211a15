#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace thunder {

/// Which Python exception type a `UserError` becomes in `bindings/`.
enum class ErrorKind { kRuntime, kType, kValue, kNotImplemented };

/// The user's mistake, or something that thunder does not support. The message says what was expected, what was
/// found and what to do; the user's source line is added by the layer that knows it.
class UserError : public std::runtime_error {
 public:
  UserError(ErrorKind kind, const std::string& message)
      : std::runtime_error(kind == ErrorKind::kNotImplemented ? refusal(message) : message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const { return kind_; }

 private:
  /// A refusal begins with thunder's name: a program that catches it shall see that it is not an error of eager's.
  static std::string refusal(const std::string& message) {
    return message.starts_with("thunder") ? message : "thunder.jit: " + message;
  }

  ErrorKind kind_;
};

/// Our mistake. `where` names the pass or layer.
class InternalError : public std::logic_error {
 public:
  InternalError(std::string where, const std::string& message)
      : std::logic_error(where + ": " + message), where_(std::move(where)) {}
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  std::string where_;
};

}  // namespace thunder

/// Throws InternalError unless `condition` holds; `message` is evaluated only then.
#define THUNDER_CHECK(condition, where, message)          \
  do {                                                    \
    if (!(condition)) [[unlikely]]                        \
      throw ::thunder::InternalError((where), (message)); \
  } while (false)
