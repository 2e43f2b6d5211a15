#pragma once

namespace thunder::operators {

/// The operator that gives memory of certain sizes and strides, without contents.
inline constexpr const char* kEmptyStrided = "aten::empty_strided";

// Operators that passes add to traces.
inline constexpr const char* kPad = "aten::constant_pad_nd";
inline constexpr const char* kReshape = "aten::reshape";
inline constexpr const char* kSlice = "aten::slice";
inline constexpr const char* kUnsqueeze = "aten::unsqueeze";

}  // namespace thunder::operators
