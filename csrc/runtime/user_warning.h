#pragma once

#include <string>

namespace thunder::runtime {

/// Tells the user something that changes no result, from any thread, which holds no lock. Throws where a warning is an
/// error for the user. Without Python it is one of PyTorch's warnings.
void warn_user(const std::string& text);

using WarnUser = void (*)(const std::string& text);
void set_warn_user(WarnUser warn);

}  // namespace thunder::runtime
