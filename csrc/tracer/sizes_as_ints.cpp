#include "tracer/sizes_as_ints.h"

#include <optional>
#include <utility>
#include <vector>

namespace thunder::tracer {
namespace {

using c10::IValue;

/// The sizes as an argument, where that was made of their numbers.
std::optional<IValue> in_place_of(const IValue& argument, const std::vector<c10::SymInt>& sizes) {
  if (argument.isInt() && sizes.size() == 1) return IValue(sizes[0]);
  if (!argument.isIntList()) return std::nullopt;
  const std::size_t count = argument.toIntVector().size();
  if (sizes.size() != 1 && sizes.size() != count) return std::nullopt;
  std::vector<c10::SymInt> list;
  for (std::size_t i = 0; i < count; ++i) list.push_back(sizes[sizes.size() == 1 ? 0 : i]);
  return IValue(c10::SymIntArrayRef(list));
}

}  // namespace

void SizesAsInts::put_into(const c10::OperatorHandle& op, std::vector<IValue>& arguments) {
  SizesAsInts* const given = of(op);
  if (given == nullptr) return;
  std::vector<IValue> others = arguments;
  for (const auto& [place, sizes] : given->sizes_) {
    auto argument = place < others.size() ? in_place_of(others[place], sizes) : std::nullopt;
    if (!argument) return;
    others[place] = *std::move(argument);
  }
  arguments = std::move(others);
  given->take();
}

}  // namespace thunder::tracer
