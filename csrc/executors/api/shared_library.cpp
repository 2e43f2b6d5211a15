#include "executors/api/shared_library.h"

#include <ATen/Context.h>
#include <dlfcn.h>

#include <algorithm>
#include <system_error>

namespace thunder::executors {

void* open_library(const std::vector<std::string>& names) {
  for (const int flags : {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW}) {
    for (const std::string& name : names) {
      if (void* const library = dlopen(name.c_str(), flags | RTLD_LOCAL)) return library;
    }
  }
  return nullptr;
}

std::vector<std::filesystem::path> library_folders() {
  namespace fs = std::filesystem;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&at::globalContext), &info) == 0 || info.dli_fname == nullptr) return {};
  // site-packages/torch/lib/libtorch_cpu.so -> site-packages/nvidia/<package>/lib
  const fs::path packages = fs::path(info.dli_fname).parent_path().parent_path().parent_path() / "nvidia";
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(packages, error)) {
    if (fs::is_directory(entry.path() / "lib", error)) folders.push_back(entry.path() / "lib");
  }
  std::ranges::sort(folders, std::greater());
  return folders;
}

}  // namespace thunder::executors
