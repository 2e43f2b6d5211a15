#pragma once

#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ir/dtype.h"
#include "ir/size.h"

namespace thunder::ir {

/// Index of a value in its trace; the same in every trace that a pass derives from it.
enum class ValueId : std::uint32_t {};
inline constexpr ValueId kNoValue{0xffffffffU};
[[nodiscard]] constexpr std::uint32_t index_of(ValueId id) { return static_cast<std::uint32_t>(id); }

/// Index of a Python object in the trace's table of constants (generators, types, classes, process groups, …).
struct ObjectConstant {
  std::uint32_t index = 0;
  friend bool operator==(const ObjectConstant&, const ObjectConstant&) = default;
};

struct None {
  friend bool operator==(None, None) = default;
};

struct Argument;
using ArgumentList = std::vector<Argument>;

/// An argument or a result of a bound symbol: values, constants, and lists and tuples of them.
struct Argument {
  using Variant = std::variant<None, ValueId, bool, std::int64_t, double, std::complex<double>, std::string, Dtype,
                               Device, Layout, MemoryFormat, ObjectConstant, Dim, ArgumentList>;
  Variant content;

  Argument() = default;
  template <typename T>
    requires(std::is_constructible_v<Variant, T> && !std::is_integral_v<std::remove_reference_t<T>> &&
             !std::same_as<std::remove_cvref_t<T>, Dim>)
  Argument(T&& value) : content(std::forward<T>(value)) {}  // NOLINT(google-explicit-constructor)
  // An integer of any width is an int64: left to the variant, std::size_t would become a complex number.
  template <std::integral T>
  Argument(T value)  // NOLINT(google-explicit-constructor)
      : content(static_cast<std::conditional_t<std::same_as<T, bool>, bool, std::int64_t>>(value)) {}
  /// A dimension that is a number is an integer.
  Argument(const Dim& dim) {  // NOLINT(google-explicit-constructor)
    if (dim.is_concrete()) {
      content = dim.hint;
    } else {
      content = dim;
    }
  }

  template <typename T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&content);
  }
  template <typename T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<T>(content);
  }
  friend bool operator==(const Argument&, const Argument&) = default;
};

/// Equal down to the bits: unlike `==`, tells 0.0 from -0.0 and finds a NaN equal to itself.
[[nodiscard]] bool identical(const Argument& left, const Argument& right);
[[nodiscard]] bool identical(const ArgumentList& left, const ArgumentList& right);
/// Agrees with `identical`.
[[nodiscard]] std::size_t hash_value(const Argument& argument);

/// Whether the argument, or an element of it, is an expression over symbols.
[[nodiscard]] bool has_symbols(const Argument& argument);

/// Calls `visit(ValueId&)` for every value inside, in order.
template <typename Visitor>
void for_each_value(Argument& argument, Visitor&& visit) {
  if (auto* id = std::get_if<ValueId>(&argument.content)) {
    visit(*id);
  } else if (auto* list = std::get_if<ArgumentList>(&argument.content)) {
    for (Argument& element : *list) for_each_value(element, visit);
  }
}
template <typename Visitor>
void for_each_value(const Argument& argument, Visitor&& visit) {
  if (const auto* id = std::get_if<ValueId>(&argument.content)) {
    visit(*id);
  } else if (const auto* list = std::get_if<ArgumentList>(&argument.content)) {
    for (const Argument& element : *list) for_each_value(element, visit);
  }
}

}  // namespace thunder::ir
