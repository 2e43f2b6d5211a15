#include "ir/argument.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string_view>

#include "base/hash.h"

namespace thunder::ir {
namespace {

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

std::size_t hash_content(None) { return 0; }
std::size_t hash_content(ValueId id) { return index_of(id); }
std::size_t hash_content(bool value) { return value ? 1 : 0; }
std::size_t hash_content(std::int64_t value) { return static_cast<std::size_t>(value); }
std::size_t hash_content(double value) { return bits(value); }
std::size_t hash_content(std::complex<double> value) { return hash_combine(bits(value.real()), bits(value.imag())); }
std::size_t hash_content(const std::string& value) { return std::hash<std::string_view>{}(value); }
std::size_t hash_content(Dtype dtype) { return static_cast<std::size_t>(dtype); }
std::size_t hash_content(Device device) {
  return hash_combine(static_cast<std::size_t>(device.type), static_cast<std::size_t>(device.index));
}
std::size_t hash_content(Layout layout) { return static_cast<std::size_t>(layout); }
std::size_t hash_content(MemoryFormat format) { return static_cast<std::size_t>(format); }
std::size_t hash_content(ObjectConstant object) { return object.index; }
std::size_t hash_content(const Dim& dim) { return reinterpret_cast<std::uintptr_t>(dim.expression); }
std::size_t hash_content(const ArgumentList& list) {
  std::size_t hash = list.size();
  for (const Argument& element : list) hash = hash_combine(hash, hash_value(element));
  return hash;
}

}  // namespace

bool identical(const ArgumentList& left, const ArgumentList& right) {
  return std::ranges::equal(left, right, [](const Argument& a, const Argument& b) { return identical(a, b); });
}

bool identical(const Argument& left, const Argument& right) {
  if (left.content.index() != right.content.index()) return false;
  if (const auto* number = left.get<double>()) return bits(*number) == bits(*right.get<double>());
  if (const auto* number = left.get<std::complex<double>>()) {
    const auto& other = *right.get<std::complex<double>>();
    return bits(number->real()) == bits(other.real()) && bits(number->imag()) == bits(other.imag());
  }
  if (const auto* list = left.get<ArgumentList>()) return identical(*list, *right.get<ArgumentList>());
  return left == right;
}

bool has_symbols(const Argument& argument) {
  const auto* list = argument.get<ArgumentList>();
  return argument.is<Dim>() || (list != nullptr && std::ranges::any_of(*list, &has_symbols));
}

std::size_t hash_value(const Argument& argument) {
  const std::size_t content = std::visit([](const auto& value) { return hash_content(value); }, argument.content);
  return hash_combine(argument.content.index(), content);
}

}  // namespace thunder::ir
