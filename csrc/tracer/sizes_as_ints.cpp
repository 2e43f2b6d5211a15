#include "tracer/sizes_as_ints.h"

#include <algorithm>

namespace thunder::tracer {
void SizesAsInts::put_into(const c10::OperatorHandle& op, std::vector<c10::IValue>& arguments) {
  SizesAsInts* const given = of(op);
  if (given == nullptr) return;
  const auto is_there = [&](const auto& size) {
    return size.first < arguments.size() && arguments[size.first].isInt();
  };
  if (!std::ranges::all_of(given->sizes_, is_there)) return;
  for (const auto& [place, size] : given->sizes_) arguments[place] = c10::IValue(size);
  given->take();
}

}  // namespace thunder::tracer
