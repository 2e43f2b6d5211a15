#pragma once

namespace thunder::operators {

/// The operator that gives memory of certain sizes and strides, without contents.
inline constexpr const char* kEmptyStrided = "aten::empty_strided";

}  // namespace thunder::operators
