#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace thunder::executors {

/// Opens the first of these libraries that the process has loaded already, or can load; null: none. It stays open.
[[nodiscard]] void* open_library(const std::vector<std::string>& names);

/// The folders in which the packages beside the running torch keep NVIDIA's libraries.
[[nodiscard]] std::vector<std::filesystem::path> library_folders();

}  // namespace thunder::executors
