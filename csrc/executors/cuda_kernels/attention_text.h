#pragma once

#include <string_view>

namespace thunder::executors::cuda {

/// The body of an attention kernel, and of the one that adds the shares of several thread blocks. In front of them
/// stand constants: see attention_source.cpp.
extern const std::string_view kAttentionText;

}  // namespace thunder::executors::cuda
