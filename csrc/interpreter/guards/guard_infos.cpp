#include "interpreter/guards/guard_infos.h"

#include <algorithm>

#include "base/bytes.h"

namespace thunder::interpreter {

std::uint32_t GuardInfos::add(const GuardInfo& info) {
  if (size_ % kBlock == 0) {
    blocks_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    last_expression_.clear();
  }
  const std::string_view expression = info.expression;
  const auto differs = std::ranges::mismatch(expression, last_expression_).in1;
  const auto common = static_cast<std::size_t>(differs - expression.begin());
  const auto [expected, is_new] = expected_numbers_.emplace(info.expected, expected_.size());
  if (is_new) expected_.push_back(info.expected);
  const auto file = std::ranges::find(files_, info.location.file);
  const auto file_number = static_cast<std::uint64_t>(file - files_.begin());
  if (file == files_.end()) files_.push_back(info.location.file);

  ByteWriter writer(bytes_);
  writer.write_number(common);
  writer.write_text(expression.substr(common));
  writer.write_number(expected->second);
  writer.write_number(file_number);
  writer.write_signed(info.location.line);
  last_expression_ = expression;
  return static_cast<std::uint32_t>(size_++);
}

GuardInfo GuardInfos::at(std::size_t index) const {
  ByteReader reader(std::string_view(bytes_).substr(blocks_.at(index / kBlock)));
  GuardInfo info;
  for (std::size_t i = 0; i <= index % kBlock; ++i) {
    info.expression.resize(reader.read_index());
    info.expression += reader.read_text();
    const std::size_t expected = reader.read_index();
    info.location.file = files_[reader.read_index()];
    info.location.line = static_cast<std::int32_t>(reader.read_signed());
    if (i == index % kBlock) info.expected = expected_[expected];
  }
  return info;
}

void GuardInfos::finish() {
  expected_numbers_.clear();
  last_expression_ = {};
  bytes_.shrink_to_fit();
  blocks_.shrink_to_fit();
  expected_.shrink_to_fit();
}

}  // namespace thunder::interpreter
