#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <string_view>

#include "ir/dtype.h"

namespace thunder::ir::python {

/// Appends the Python expression for a constant to `text`; evaluated, it gives the same bits (any NaN becomes the
/// quiet one). `torch` must be bound.
void append_literal(std::string& text, bool value);
void append_literal(std::string& text, std::int64_t value);
void append_literal(std::string& text, double value);
void append_literal(std::string& text, std::complex<double> value);
void append_literal(std::string& text, std::string_view value);
void append_literal(std::string& text, Dtype dtype);
void append_literal(std::string& text, Device device);
void append_literal(std::string& text, Layout layout);
void append_literal(std::string& text, MemoryFormat format);

/// `text` on one line, as a comment takes it.
void append_comment_text(std::string& text, std::string_view comment);

[[nodiscard]] bool is_keyword(std::string_view word);
/// `hint` with what an identifier cannot hold replaced by `_`: `layers.0.weight` becomes `layers_0_weight`.
[[nodiscard]] std::string make_identifier(std::string_view hint);

}  // namespace thunder::ir::python
