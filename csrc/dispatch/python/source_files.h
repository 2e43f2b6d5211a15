#pragma once

#include <string>
#include <string_view>

namespace thunder::dispatch {

/// The folder of the torch package, with a slash at its end; empty when it cannot be found.
[[nodiscard]] const std::string& torch_folder();

/// Whether a file is no part of the user's program: one of torch's, one of Python's own modules, or one of ours whose
/// functions stand between the user's.
[[nodiscard]] bool is_library_file(std::string_view file);
/// Whether a file belongs to thunder itself.
[[nodiscard]] bool is_own_file(std::string_view file);

}  // namespace thunder::dispatch
