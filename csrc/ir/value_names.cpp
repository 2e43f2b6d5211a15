#include "ir/value_names.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "ir/python_text.h"

namespace thunder::ir {
namespace {

bool is_numbered(std::string_view name, std::string_view prefix) {
  return name.size() > prefix.size() && name.starts_with(prefix) &&
         std::ranges::all_of(name.substr(prefix.size()), [](char c) { return c >= '0' && c <= '9'; });
}

/// Names that the printed program uses itself.
bool is_reserved(std::string_view name) {
  return name == "torch" || name == "prims" || name == "float" || name == "complex" || name == "getattr" ||
         name == "_" || name == "__debug__" || is_numbered(name, "t") || is_numbered(name, "object");
}

void append_number(std::string& text, std::uint32_t number) { python::append_literal(text, std::int64_t{number}); }

/// Makes names unique in amortized constant time: each base name counts its own suffixes.
class UniqueNames {
 public:
  std::string make(std::string_view hint) {
    std::string name = python::make_identifier(hint);
    if (is_reserved(name)) name += '_';
    const auto [known, added] = next_suffix_.emplace(name, 1);
    if (added) return name;
    const std::string base = name + '_';
    for (std::uint32_t& suffix = known->second;;) {
      name = base;
      append_number(name, suffix++);
      if (!next_suffix_.contains(name)) break;
    }
    next_suffix_.emplace(name, 1);
    return name;
  }

 private:
  std::unordered_map<std::string, std::uint32_t> next_suffix_;
};

}  // namespace

ValueNames::ValueNames(const Trace& trace) : names_(trace.value_count()) {
  UniqueNames unique;
  for (std::uint32_t i = 0; i < names_.size(); ++i) {
    const std::string& hint = trace.value(ValueId{i}).name;
    if (!hint.empty()) {
      names_[i] = unique.make(hint);
    }
  }
}

void ValueNames::append(std::string& text, ValueId id) const {
  const std::uint32_t index = index_of(id);
  if (index < names_.size() && !names_[index].empty()) {
    text += names_[index];
  } else {
    text += 't';
    append_number(text, index);
  }
}

}  // namespace thunder::ir
