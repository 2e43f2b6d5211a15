#include "ir/python_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace thunder::ir::python {
namespace {

// Sorted; without the soft keywords, which may name a variable.
constexpr std::array<std::string_view, 35> kKeywords = {
    "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
    "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
    "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
    "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};
static_assert(std::ranges::is_sorted(kKeywords));

constexpr char kHexDigits[] = "0123456789abcdef";

bool is_identifier_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

void append_literal(std::string& text, bool value) { text += value ? "True" : "False"; }

void append_literal(std::string& text, std::int64_t value) {
  std::array<char, 24> buffer;
  text.append(buffer.data(), std::to_chars(buffer.begin(), buffer.end(), value).ptr);
}

// As repr() writes it: the shortest digits that round-trip, an exponent below 1e-4 and from 1e16 on.
void append_literal(std::string& text, double value) {
  if (std::isnan(value)) {
    text += "float(\"nan\")";
    return;
  }
  if (std::isinf(value)) {
    text += value > 0 ? "float(\"inf\")" : "float(\"-inf\")";
    return;
  }
  const double magnitude = std::fabs(value);
  const bool fixed = magnitude == 0.0 || (magnitude >= 1e-4 && magnitude < 1e16);
  std::array<char, 40> buffer;
  const char* end = std::to_chars(buffer.begin(), buffer.end(), value,
                                  fixed ? std::chars_format::fixed : std::chars_format::scientific)
                        .ptr;
  const std::string_view digits(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  text += digits;
  if (fixed && digits.find('.') == std::string_view::npos) text += ".0";
}

void append_literal(std::string& text, std::complex<double> value) {
  text += "complex(";
  append_literal(text, value.real());
  text += ", ";
  append_literal(text, value.imag());
  text += ')';
}

void append_literal(std::string& text, std::string_view value) {
  text += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      text += "\\x";
      text += kHexDigits[static_cast<unsigned char>(c) >> 4];
      text += kHexDigits[static_cast<unsigned char>(c) & 0xf];
    } else {
      text += c;
    }
  }
  text += '"';
}

void append_literal(std::string& text, Dtype dtype) { text.append("torch.").append(torch_name(dtype)); }

void append_literal(std::string& text, Device device) {
  text.append("torch.device(\"").append(torch_name(device.type)) += '"';
  if (device.index >= 0) {
    text += ", ";
    append_literal(text, std::int64_t{device.index});
  }
  text += ')';
}

void append_literal(std::string& text, Layout layout) { text.append("torch.").append(torch_name(layout)); }

void append_literal(std::string& text, MemoryFormat format) { text.append("torch.").append(torch_name(format)); }

void append_comment_text(std::string& text, std::string_view comment) {
  for (const char c : comment) text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
}

bool is_keyword(std::string_view word) { return std::ranges::binary_search(kKeywords, word); }

std::string make_identifier(std::string_view hint) {
  std::string name;
  name.reserve(hint.size() + 1);
  if (hint.empty() || (hint.front() >= '0' && hint.front() <= '9')) name += '_';
  for (const char c : hint) name += is_identifier_character(c) ? c : '_';
  if (is_keyword(name)) name += '_';
  return name;
}

}  // namespace thunder::ir::python
