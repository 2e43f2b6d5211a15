#include "tracer/sizes_as_ints.h"

#include <algorithm>

namespace thunder::tracer {
namespace {

SizesAsInts*& current() {
  thread_local SizesAsInts* arguments = nullptr;
  return arguments;
}

}  // namespace

SizesAsInts::SizesAsInts(std::string op, std::vector<std::pair<std::size_t, c10::SymInt>> sizes)
    : op_(std::move(op)), sizes_(std::move(sizes)), before_(std::exchange(current(), this)) {}

SizesAsInts::~SizesAsInts() { current() = before_; }

void SizesAsInts::put_into(const c10::OperatorHandle& op, std::vector<c10::IValue>& arguments) {
  SizesAsInts* const given = current();
  if (given == nullptr || given->are_taken_ || op.operator_name().name != given->op_) return;
  const auto is_there = [&](const auto& size) {
    return size.first < arguments.size() && arguments[size.first].isInt();
  };
  if (!std::ranges::all_of(given->sizes_, is_there)) return;
  for (const auto& [place, size] : given->sizes_) arguments[place] = c10::IValue(size);
  given->are_taken_ = true;
}

}  // namespace thunder::tracer
