#include "executors/cublaslt/api.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "executors/api/shared_library.h"

namespace thunder::executors::cublaslt {
namespace {

std::optional<Api> load() {
  constexpr std::array kNames = {"libcublasLt.so.13", "libcublasLt.so.12"};
  std::vector<std::string> candidates(kNames.begin(), kNames.end());
  for (const std::filesystem::path& folder : library_folders()) {
    for (const char* name : kNames) {
      if (std::filesystem::exists(folder / name)) candidates.push_back((folder / name).string());
    }
  }
  void* const library = open_library(candidates);
  if (library == nullptr) return std::nullopt;
  Api api;
  bool has_all = true;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    has_all = has_all && function != nullptr;
  };
  bind(api.create, "cublasLtCreate");
  bind(api.create_matmul, "cublasLtMatmulDescCreate");
  bind(api.set_matmul, "cublasLtMatmulDescSetAttribute");
  bind(api.create_layout, "cublasLtMatrixLayoutCreate");
  bind(api.create_preference, "cublasLtMatmulPreferenceCreate");
  bind(api.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  bind(api.destroy_matmul, "cublasLtMatmulDescDestroy");
  bind(api.destroy_layout, "cublasLtMatrixLayoutDestroy");
  bind(api.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  bind(api.find_algorithms, "cublasLtMatmulAlgoGetHeuristic");
  bind(api.run, "cublasLtMatmul");
  bind(api.text, "cublasLtGetStatusString");
  return has_all ? std::make_optional(api) : std::nullopt;
}

}  // namespace

const Api* Api::find() {
  static const std::optional<Api> kApi = load();
  return kApi ? &*kApi : nullptr;
}

}  // namespace thunder::executors::cublaslt
