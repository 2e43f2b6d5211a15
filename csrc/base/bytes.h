#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace thunder {

/// Appends to bytes: integers in as many groups of seven bits as they need.
class ByteWriter {
 public:
  explicit ByteWriter(std::string& bytes) : bytes_(bytes) {}

  void write_number(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes_.push_back(static_cast<char>(number | 0x80));
    bytes_.push_back(static_cast<char>(number));
  }
  void write_signed(std::int64_t number) {
    write_number((static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63));
  }
  void write_double(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(bits >> shift));
  }
  void write_text(std::string_view text) {
    write_number(text.size());
    bytes_ += text;
  }

 private:
  std::string& bytes_;
};

/// Reads what a ByteWriter wrote, in the same order. Throws InternalError where the bytes hold no such thing.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  std::uint64_t read_number() {
    std::uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const std::uint8_t next = read_byte();
      THUNDER_CHECK(shift < 63 || next < 2, "base/bytes", "a number has more than 64 bits");
      number |= std::uint64_t{next & 0x7fU} << shift;
      if (next < 0x80) return number;
    }
  }
  /// A number of things that take a byte each or more, so that bytes which lie cannot ask for much memory.
  std::size_t read_count() {
    const std::uint64_t count = read_number();
    THUNDER_CHECK(count <= bytes_.size() - at_, "base/bytes", "the bytes end early");
    return static_cast<std::size_t>(count);
  }
  std::size_t read_index() { return static_cast<std::size_t>(read_number()); }
  std::uint32_t read_small() { return static_cast<std::uint32_t>(read_number()); }
  std::int64_t read_signed() {
    const std::uint64_t number = read_number();
    return static_cast<std::int64_t>((number >> 1) ^ (~(number & 1) + 1));
  }
  double read_double() {
    std::uint64_t bits = 0;
    for (int shift = 0; shift < 64; shift += 8) {
      bits |= std::uint64_t{read_byte()} << shift;
    }
    return std::bit_cast<double>(bits);
  }
  std::string_view read_text() {
    const std::size_t size = read_count();
    const std::string_view text = bytes_.substr(at_, size);
    at_ += size;
    return text;
  }

  [[nodiscard]] bool is_at_end() const { return at_ == bytes_.size(); }

 private:
  std::uint8_t read_byte() {
    THUNDER_CHECK(at_ < bytes_.size(), "base/bytes", "the bytes end early");
    return static_cast<std::uint8_t>(bytes_[at_++]);
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace thunder
