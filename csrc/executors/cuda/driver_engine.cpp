#include "executors/cuda/driver_engine.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executors/cuda/driver.h"
#include "executors/cuda/kernel_cache.h"
#include "executors/cuda/launch_graph.h"

namespace thunder::executors::cuda {
namespace {

/// Numbers of `CUdevice_attribute`.
enum Attribute : int { kMultiprocessors = 16, kCapabilityMajor = 75, kCapabilityMinor = 76 };

int attribute(at::Device device, Attribute which) {
  const Driver& driver = Driver::get();
  int number = 0;
  int value = 0;
  driver.check(driver.device(&number, device.index()), "looking for a device");
  driver.check(driver.attribute(&value, which, number), "asking what a device is");
  return value;
}

/// Whether kernels wait for those before them by themselves: see `wait_for_previous` in the prelude.
bool overlaps_kernels(at::Device device) {
  constexpr int kLeastCapability = 9;
  static const char* const kSwitch = std::getenv("THUNDER_OVERLAP_KERNELS");
  if (kSwitch != nullptr && std::string_view(kSwitch) == "0") return false;
  constexpr std::size_t kMostDevices = 64;
  static std::array<std::atomic<int>, kMostDevices> known{};  // 0: not known yet
  const auto index = static_cast<std::size_t>(std::max<int>(device.index(), 0));
  if (index >= kMostDevices) return false;
  int major = known[index].load(std::memory_order_relaxed);
  if (major == 0) known[index] = major = attribute(device, kCapabilityMajor);
  return major >= kLeastCapability;
}

bool is_capturing(const Driver& driver, const c10::Stream& stream) {
  int status = 0;
  return driver.is_capturing(stream.native_handle(), &status) == 0 && status != 0;
}

/// Whether what is won by overlapping is more than what such a launch costs the processor (3 to 6 µs on an H200's
/// host): only kernels of many threads keep a GPU busy for longer than their launches take, and a graph is launched as
/// one.
bool is_worth_overlapping(const Driver& driver, const Launch& launch, const c10::Stream& stream) {
  constexpr std::int64_t kLeastThreads = INT64_C(1) << 20U;
  return launch.grid * launch.threads >= kLeastThreads || is_capturing(driver, stream);
}

/// Launches a kernel, which may begin while the one before it in the stream ends where it `overlaps`.
Driver::Result launch_function(const Driver& driver, const LaunchGraph::Function& function, Driver::Handle stream,
                               bool overlaps) {
  void* arguments[] = {const_cast<std::byte*>(function.argument.data())};
  if (!overlaps) {
    return driver.launch(function.handle, function.grid, 1, 1, function.threads, 1, 1, 0, stream, arguments, nullptr);
  }
  constexpr int kProgrammaticSerialization = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  LaunchAttribute overlap{};
  overlap.number = kProgrammaticSerialization;
  overlap.value = 1;
  LaunchConfiguration configuration;
  configuration.grid[0] = function.grid;
  configuration.block[0] = function.threads;
  configuration.stream = stream;
  configuration.attributes = &overlap;
  configuration.attribute_count = 1;
  return driver.launch_with(&configuration, function.handle, arguments, nullptr);
}

/// The device's context, which PyTorch uses too.
Driver::Handle context_of(const Driver& driver, at::Device device) {
  Driver::Handle context = nullptr;
  int number = 0;
  driver.check(driver.device(&number, device.index()), "looking for a device");
  driver.check(driver.retain_context(&context, number), "taking the device's context");
  return context;
}

/// Makes the context of the current device that of this thread, where it has none yet.
void require_context(const Driver& driver, at::Device device) {
  Driver::Handle context = nullptr;
  driver.check(driver.current_context(&context), "asking for the context");
  if (context == nullptr) driver.check(driver.set_context(context_of(driver, device)), "making a context current");
}

/// While alive, this thread may do what would end another thread's capture of a CUDA graph if it were part of it.
class OutsideOfCaptures {
 public:
  explicit OutsideOfCaptures(const Driver& driver) : driver_(driver) { exchange(); }
  ~OutsideOfCaptures() { exchange(); }
  OutsideOfCaptures(const OutsideOfCaptures&) = delete;
  OutsideOfCaptures& operator=(const OutsideOfCaptures&) = delete;

 private:
  void exchange() { static_cast<void>(driver_.exchange_capture_mode(&mode_)); }

  const Driver& driver_;
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
};

/// Functions by name, found when the module is loaded: launches look for them without a lock.
class LoadedModule : public Module {
 public:
  LoadedModule(const std::string& code, const KernelSource& source, at::Device device) {
    const Driver& driver = Driver::get();
    // A worker thread has no current device. PyTorch's guard would start the first device when it ends.
    driver.check(driver.push_context(context_of(driver, device)), "making a context current");
    struct Guard {
      const Driver& driver;
      ~Guard() {
        Driver::Handle popped = nullptr;
        static_cast<void>(driver.pop_context(&popped));
      }
    } const guard{driver};
    const OutsideOfCaptures outside(driver);
    driver.check(driver.load_module(&module_, code.data()), "loading a kernel");
    for (const Launch& launch : source.launches) {
      Driver::Handle function = nullptr;
      driver.check(driver.function(&function, module_, launch.name.c_str()), "finding the kernel " + launch.name);
      functions_.emplace_back(launch.name, function);
    }
  }
  // Modules stay loaded: a process may end before them, and the driver with it.

  [[nodiscard]] std::optional<int> registers(const std::string& name) const override {
    constexpr int kRegisters = 4;  // CU_FUNC_ATTRIBUTE_NUM_REGS
    int count = 0;
    const bool is_known = Driver::get().function_attribute(&count, kRegisters, function(name)) == 0;
    return is_known ? std::make_optional(count) : std::nullopt;
  }
  [[nodiscard]] Driver::Handle function(const std::string& name) const {
    return std::ranges::find(functions_, name, &std::pair<std::string, Driver::Handle>::first)->second;
  }

 private:
  Driver::Handle module_ = nullptr;
  std::vector<std::pair<std::string, Driver::Handle>> functions_;
};

LaunchGraph::Function function_of(const Module& module, const Launch& launch, std::int64_t grid,
                                  std::span<const std::byte> argument) {
  return {static_cast<const LoadedModule&>(module).function(launch.name), static_cast<unsigned>(grid),
          static_cast<unsigned>(launch.threads), argument};
}

std::vector<LaunchGraph::Function> functions_of(std::span<const QueuedLaunch> launches,
                                                std::span<const std::byte> arguments) {
  std::vector<LaunchGraph::Function> functions;
  functions.reserve(launches.size());
  for (const QueuedLaunch& each : launches) {
    const auto argument = arguments.subspan(each.argument, each.size);
    functions.push_back(function_of(*each.module, *each.launch, each.grid, argument));
  }
  return functions;
}

class DriverEngine : public Engine {
 public:
  [[nodiscard]] at::DeviceType device_type() const override { return at::kCUDA; }
  [[nodiscard]] int multiprocessors(at::Device device) override { return attribute(device, kMultiprocessors); }
  [[nodiscard]] c10::Allocator* allocator() override {
    static std::once_flag started;
    std::call_once(started, [] { at::globalContext().lazyInitDevice(at::kCUDA); });
    return at::detail::getCUDAHooks().getCUDADeviceAllocator();
  }

  bool launch(const Module& module, const Launch& launch, std::span<const std::byte> argument,
              at::Device device) override {
    const Driver& driver = Driver::get();
    require_context(driver, device);
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    const bool overlaps =
        driver.launch_with != nullptr && overlaps_kernels(device) && is_worth_overlapping(driver, launch, stream);
    const LaunchGraph::Function function = function_of(module, launch, launch.grid, argument);
    const Driver::Result result = launch_function(driver, function, stream.native_handle(), overlaps);
    if (result != 0) {
      driver.check(result, "launching " + std::to_string(launch.grid) + " x " + std::to_string(launch.threads) +
                               " threads of a fusion");
    }
    return true;
  }

  [[nodiscard]] bool queues_launches() const override {
    static const char* const kSwitch = std::getenv("THUNDER_QUEUE_LAUNCHES");
    return kSwitch == nullptr || std::string_view(kSwitch) != "0";
  }

  void launch_group(std::span<const QueuedLaunch> launches, std::span<const std::byte> arguments, at::Device device,
                    std::unique_ptr<LaunchGroup>& kept) override {
    constexpr std::size_t kLeast = 4;  // fewer launches take no longer than a graph
    const Driver& driver = Driver::get();
    const c10::DeviceGuard guard(device);
    require_context(driver, device);
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    const bool may_be_graph =
        launches.size() >= kLeast && driver.launch_graph != nullptr && !is_capturing(driver, stream);
    if (may_be_graph) {
      const auto* const known = static_cast<const LaunchGraph*>(kept.get());
      if (known == nullptr || known->device() != device) kept = std::make_unique<LaunchGraph>(driver, device);
      const auto launch_one = [&](const LaunchGraph::Function& function, Driver::Handle recording) {
        return launch_function(driver, function, recording, overlaps_kernels(device));
      };
      auto& graph = static_cast<LaunchGraph&>(*kept);
      if (graph.launch(functions_of(launches, arguments), stream.native_handle(), launch_one)) return;
    }
    Engine::launch_group(launches, arguments, device, kept);
  }

 protected:
  [[nodiscard]] std::shared_ptr<const Module> compile(const KernelSource& source, at::Device device) override {
    const int capability = attribute(device, kCapabilityMajor) * 10 + attribute(device, kCapabilityMinor);
    return std::make_shared<const LoadedModule>(cached_cubin(source.text, capability), source, device);
  }
};

}  // namespace

Engine& driver_engine() {
  static auto* const kEngine = new DriverEngine;
  return *kEngine;
}

std::optional<std::int64_t> memory_of(ir::Device device) {
  try {
    const Driver& driver = Driver::get();
    int number = 0;
    std::size_t bytes = 0;
    driver.check(driver.device(&number, std::max<int>(device.index, 0)), "looking for a device");
    driver.check(driver.total_memory(&bytes, number), "asking for its memory");
    return static_cast<std::int64_t>(bytes);
  } catch (const UserError&) {  // tensors without data, on a machine without a GPU
    return std::nullopt;
  }
}

}  // namespace thunder::executors::cuda
