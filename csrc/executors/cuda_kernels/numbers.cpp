#include "executors/cuda_kernels/numbers.h"

#include <bit>
#include <cmath>
#include <utility>

namespace thunder::executors::cuda {

using fusion::ComputeType;

std::string Numbers::index(std::int64_t value, std::string_view name) {
  if (value == 0 || value == 1) return std::to_string(value);
  return add(value, name, "Index");
}

std::string Numbers::real(double value, ComputeType type) {
  for (const double plain : {0.0, 1.0, -1.0, 2.0, 0.5}) {
    if (value == plain && std::signbit(value) == std::signbit(plain)) {
      return join(type == ComputeType::kFloat ? "float(" : "double(", std::to_string(plain), ")");
    }
  }
  const bool is_float = type == ComputeType::kFloat;
  const std::int64_t bits =
      is_float ? std::bit_cast<std::int32_t>(static_cast<float>(value)) : std::bit_cast<std::int64_t>(value);
  return add(bits, "real", is_float ? "float" : "double");
}

std::string Numbers::term(std::string_view index, std::int64_t stride, std::string_view name) {
  if (stride == 0) return "";
  return stride == 1 ? std::string(index) : join(index, " * ", this->index(stride, name));
}

void Numbers::declare(Lines& lines) const {
  for (const Declared& each : declared_) {
    if (each.type == "Index") {
      lines.add("const Index ", each.name, " = static_cast<Index>(p.numbers[", each.place, "]);");
    } else {
      lines.add("const ", each.type, " ", each.name, " = real_of<", each.type, ">(p.numbers[", each.place, "]);");
    }
  }
}

std::string Numbers::add(std::int64_t value, std::string_view name, std::string type) {
  declared_.push_back({join(name, "_", values_.size()), std::move(type), values_.size()});
  values_.push_back(value);
  return declared_.back().name;
}

std::string sum_of(const std::vector<std::string>& terms) {
  std::string text;
  for (const std::string& term : terms) {
    if (term.empty() || term == "0") continue;
    text += (text.empty() ? "" : " + ") + term;
  }
  return text.empty() ? "0" : text;
}

}  // namespace thunder::executors::cuda
