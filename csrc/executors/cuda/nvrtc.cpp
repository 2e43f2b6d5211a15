#include "executors/cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <system_error>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "executors/api/shared_library.h"

namespace thunder::executors::cuda {
namespace {

struct Nvrtc {
  using Result = int;
  using Program = void*;

  Result (*version)(int* major, int* minor) = nullptr;
  Result (*create)(Program* program, const char* text, const char* name, int headers, const char* const* contents,
                   const char* const* names) = nullptr;
  Result (*destroy)(Program* program) = nullptr;
  Result (*compile)(Program program, int options, const char* const* option) = nullptr;
  Result (*log_size)(Program program, std::size_t* size) = nullptr;
  Result (*log)(Program program, char* log) = nullptr;
  Result (*cubin_size)(Program program, std::size_t* size) = nullptr;
  Result (*cubin)(Program program, char* code) = nullptr;
  std::uintmax_t bytes = 0;  ///< size of the library: versions of one number differ
};

std::uintmax_t bytes_of_library(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return 0;
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(info.dli_fname, error);
  return error ? 0 : bytes;
}

/// NVRTC finds its `builtins` by their name among the libraries that the process has loaded.
void open_builtins(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libnvrtc-builtins.so")) static_cast<void>(open_library({entry.path().string()}));
  }
}

std::optional<Nvrtc> load_nvrtc() {
  constexpr std::array kNames = {"libnvrtc.so.13", "libnvrtc.so.12"};
  std::vector<std::string> candidates(kNames.begin(), kNames.end());
  for (const std::filesystem::path& folder : library_folders()) {
    for (const char* name : kNames) {
      if (!std::filesystem::exists(folder / name)) continue;
      open_builtins(folder);
      candidates.push_back((folder / name).string());
    }
  }
  void* const library = open_library(candidates);
  if (library == nullptr) return std::nullopt;
  Nvrtc nvrtc;
  bool has_all = true;
  const auto bind = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    has_all = has_all && function != nullptr;
  };
  bind(nvrtc.version, "nvrtcVersion");
  bind(nvrtc.create, "nvrtcCreateProgram");
  bind(nvrtc.destroy, "nvrtcDestroyProgram");
  bind(nvrtc.compile, "nvrtcCompileProgram");
  bind(nvrtc.log_size, "nvrtcGetProgramLogSize");
  bind(nvrtc.log, "nvrtcGetProgramLog");
  bind(nvrtc.cubin_size, "nvrtcGetCUBINSize");
  bind(nvrtc.cubin, "nvrtcGetCUBIN");
  nvrtc.bytes = bytes_of_library(reinterpret_cast<const void*>(nvrtc.version));
  return has_all ? std::make_optional(nvrtc) : std::nullopt;
}

const std::optional<Nvrtc>& library() {
  static const std::optional<Nvrtc> kLibrary = load_nvrtc();
  return kLibrary;
}

const Nvrtc& require_nvrtc() {
  if (library()) return *library();
  throw UserError(ErrorKind::kRuntime,
                  "cuda: expected NVRTC (libnvrtc.so), which could not be opened; install the package "
                  "nvidia-cuda-nvrtc of the CUDA that torch was built for");
}

void check(Nvrtc::Result result, const char* doing) {
  THUNDER_CHECK(result == 0, "cuda", std::string("NVRTC, ") + doing + ": error " + std::to_string(result));
}

std::array<std::string, 3> options_for(int capability) {
  return {"--gpu-architecture=sm_" + std::to_string(capability), "--std=c++17", "--disable-warnings"};
}

/// The path of a file with a text that NVRTC does not take; the text itself where no file can be written.
std::string written(const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  const fs::path path = folder / ("thunder_" + std::to_string(std::hash<std::string>()(text)) + ".cu");
  std::ofstream file(path);
  file << text;
  file.close();
  return file ? path.string() : text;
}

}  // namespace

bool has_nvrtc() { return library().has_value(); }

std::string compile_to_cubin(const std::string& text, int capability) {
  const Nvrtc& nvrtc = require_nvrtc();
  Nvrtc::Program program = nullptr;
  check(nvrtc.create(&program, text.c_str(), "fusion.cu", 0, nullptr, nullptr), "creating a program");
  struct Guard {
    const Nvrtc& nvrtc;
    Nvrtc::Program& program;
    ~Guard() { nvrtc.destroy(&program); }
  } const guard{nvrtc, program};
  const auto texts = options_for(capability);
  std::array<const char*, std::tuple_size_v<decltype(texts)>> options{};
  std::ranges::transform(texts, options.begin(), &std::string::c_str);
  const Nvrtc::Result result = nvrtc.compile(program, static_cast<int>(options.size()), options.data());
  std::size_t size = 0;
  if (result != 0) {
    check(nvrtc.log_size(program, &size), "reading its messages");
    std::string log(size, '\0');
    check(nvrtc.log(program, log.data()), "reading its messages");
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
    throw InternalError("cuda", "NVRTC does not take a kernel, which is in " + written(text) + ":\n" + log);
  }
  check(nvrtc.cubin_size(program, &size), "reading the machine code");
  std::string code(size, '\0');
  check(nvrtc.cubin(program, code.data()), "reading the machine code");
  return code;
}

std::string compiler_key(int capability) {
  const Nvrtc& nvrtc = require_nvrtc();
  int major = 0;
  int minor = 0;
  check(nvrtc.version(&major, &minor), "asking for its version");
  std::string key = "nvrtc " + std::to_string(major) + "." + std::to_string(minor) + ", " + std::to_string(nvrtc.bytes);
  for (const std::string& option : options_for(capability)) key += " " + option;
  return key;
}

}  // namespace thunder::executors::cuda
