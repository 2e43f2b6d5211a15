#include "interpreter/guards/distinct_objects.h"

#include <algorithm>
#include <bit>

namespace thunder::interpreter {

DistinctObjects::DistinctObjects(std::vector<std::uint32_t> written, std::vector<std::uint32_t> read,
                                 Candidates needed_by)
    : needed_by(needed_by),
      written_(std::move(written)),
      read_(std::move(read)),
      table_(std::bit_ceil(4 * written_.size())) {}

PyObject*& DistinctObjects::place_of(PyObject* object) {
  const std::size_t last = table_.size() - 1;
  std::size_t index = ((reinterpret_cast<std::uintptr_t>(object) >> 4) * 0x9E3779B97F4A7C15ULL >> 32) & last;
  while (table_[index] != nullptr && table_[index] != object) index = (index + 1) & last;
  return table_[index];
}

bool DistinctObjects::holds(PyObject* const* registers) {
  std::ranges::fill(table_, nullptr);
  for (const std::uint32_t node : written_) {
    PyObject*& place = place_of(registers[node]);
    if (place != nullptr) return false;
    place = registers[node];
  }
  return std::ranges::all_of(read_, [&](std::uint32_t node) { return place_of(registers[node]) == nullptr; });
}

}  // namespace thunder::interpreter
