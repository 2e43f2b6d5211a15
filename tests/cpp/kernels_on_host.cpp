#include "kernels_on_host.h"

#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>

#include "base/error.h"
#include "check.h"
#include "executors/cuda/engine.h"
#include "executors/cuda/executor.h"
#include "executors/cuda/nvrtc.h"
#include "executors/cuda_kernels/target.h"

namespace thunder::check {
namespace {

using executors::cuda::KernelSource;
using executors::cuda::Launch;

std::atomic<bool> uses_nvrtc = true;
/// Whether kernels wait for others, as on a GPU: one that stops is a mistake then.
const bool kQueues = std::getenv("THUNDER_QUEUE_ON_HOST") != nullptr;

class Library : public executors::cuda::Module {
 public:
  using Function = bool (*)(const void* argument, std::int64_t grid, int threads);

  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    THUNDER_CHECK(handle_ != nullptr, "test", dlerror());
  }
  [[nodiscard]] Function function(const std::string& name) const {
    return reinterpret_cast<Function>(dlsym(handle_, ("launch_" + name).c_str()));
  }

 private:
  void* handle_;
};

std::shared_ptr<const Library> compiled(const KernelSource& source) {
  std::string pattern = (std::filesystem::temp_directory_path() / "thunder_kernel_XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(pattern.data());
  const std::filesystem::path header = std::filesystem::path(THUNDER_TESTS_FOLDER) / "cuda_on_host.h";
  {
    std::ofstream file(folder / "kernel.cpp");
    file << "#include \"" << header.string() << "\"\n" << source.text << "\nTHUNDER_CONVERSIONS_ON_HOST\n";
    file << "static " << (source.capacity > 0 ? "Batch" : "Parameters") << " given;\n";
    for (const Launch& launch : source.launches) {
      file << "extern \"C\" bool launch_" << launch.name << "(const void* argument, std::int64_t grid, int threads) {\n"
           << "  std::memcpy(&given, argument, sizeof given);\n"
           << "  return run_grid([] { " << launch.name << "(given); }, grid, threads);\n}\n";
    }
  }
  const auto setting = [](const char* name, const char* otherwise) -> std::string {
    const char* chosen = std::getenv(name);
    return chosen != nullptr ? chosen : otherwise;
  };
  const std::string command = setting("CXX", "c++") + " -std=c++20 -w -O1 -shared -fPIC " +
                              setting("THUNDER_KERNEL_CXXFLAGS", "") + " -o '" + (folder / "kernel.so").string() +
                              "' '" + (folder / "kernel.cpp").string() + "'";
  const int status = std::system(command.c_str());  // NOLINT(cert-env33-c)
  THUNDER_CHECK(status == 0, "test", command + "\n" + source.text);
  auto library = std::make_shared<const Library>((folder / "kernel.so").string());
  std::filesystem::remove_all(folder);
  return library;
}

class Host : public executors::cuda::Engine {
 public:
  [[nodiscard]] at::DeviceType device_type() const override { return at::kCPU; }
  [[nodiscard]] int multiprocessors(at::Device /*device*/) override { return 2; }
  [[nodiscard]] c10::Allocator* allocator() override { return c10::GetCPUAllocator(); }
  bool launch(const executors::cuda::Module& module, const Launch& launch, std::span<const std::byte> argument,
              at::Device /*device*/) override {
    const std::scoped_lock lock(mutex_);
    ++launches_;
    return static_cast<const Library&>(module).function(launch.name)(argument.data(), launch.grid, launch.threads);
  }

  [[nodiscard]] bool queues_launches() const override { return kQueues; }
  [[nodiscard]] int launches() const { return launches_; }

 protected:
  [[nodiscard]] std::shared_ptr<const executors::cuda::Module> compile(const KernelSource& source,
                                                                       at::Device /*device*/) override {
    if (uses_nvrtc && executors::cuda::has_nvrtc()) {
      for (const int capability : {80, 90, 100})
        CHECK(!executors::cuda::compile_to_cubin(source.text, capability).empty());
    }
    return compiled(source);
  }

 private:
  std::mutex mutex_;
  int launches_ = 0;
};

Host host;

const fusion::Target kTarget = [] {
  fusion::Target target = executors::cuda::kTarget;
  target.accepts = [](const ir::TensorType& type) {
    return type.device.type == ir::DeviceType::kCpu && fusion::has_compute_type(type.dtype);
  };
  return target;
}();

const executors::cuda::Backend kBackend{&kTarget, &host};

}  // namespace

int launches_on_host() { return host.launches(); }
void leave_out_nvrtc() { uses_nvrtc = false; }

const executors::Executor kKernelsOnHost = executors::cuda::make_executor("cuda_on_host", kBackend);

}  // namespace thunder::check
