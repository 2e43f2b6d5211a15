#include "executors/cuda/driver_engine.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "executors/cuda/driver.h"
#include "executors/cuda/nvrtc.h"

namespace thunder::executors::cuda {
namespace {

/// Numbers of `CUdevice_attribute`.
enum Attribute : int { kMultiprocessors = 16, kCapabilityMajor = 75, kCapabilityMinor = 76 };

/// Makes the device's context, which PyTorch uses too, the current one of this thread.
void require_context(const Driver& driver, at::Device device) {
  Driver::Handle context = nullptr;
  driver.check(driver.current_context(&context), "asking for the context");
  if (context != nullptr) return;
  int number = 0;
  driver.check(driver.device(&number, device.index()), "looking for a device");
  driver.check(driver.retain_context(&context, number), "taking the device's context");
  driver.check(driver.set_context(context), "making the context the current one");
}

class LoadedModule : public Module {
 public:
  LoadedModule(const std::string& code, at::Device device) : driver_(Driver::get()) {
    const c10::DeviceGuard guard(device);
    require_context(driver_, device);
    driver_.check(driver_.load_module(&module_, code.data()), "loading a kernel");
  }
  // Modules stay loaded: a process may end before them, and the driver with it.

  [[nodiscard]] Driver::Handle function(const std::string& name) const {
    const std::scoped_lock lock(mutex_);
    auto [found, is_new] = functions_.try_emplace(name, nullptr);
    if (is_new) driver_.check(driver_.function(&found->second, module_, name.c_str()), "finding the kernel " + name);
    return found->second;
  }

 private:
  const Driver& driver_;
  Driver::Handle module_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Driver::Handle> functions_;
};

class DriverEngine : public Engine {
 public:
  [[nodiscard]] at::DeviceType device_type() const override { return at::kCUDA; }

  [[nodiscard]] int multiprocessors(at::Device device) override { return attribute(device, kMultiprocessors); }

  [[nodiscard]] std::shared_ptr<const Module> compile(const KernelSource& source, at::Device device) override {
    const auto key = std::pair(device.index(), source.text);
    {
      const std::scoped_lock lock(mutex_);
      if (const auto known = modules_.find(key); known != modules_.end()) return known->second;
    }
    const int capability = attribute(device, kCapabilityMajor) * 10 + attribute(device, kCapabilityMinor);
    auto made = std::make_shared<const LoadedModule>(compile_to_cubin(source.text, capability), device);
    const std::scoped_lock lock(mutex_);
    return modules_.try_emplace(key, std::move(made)).first->second;
  }

  bool launch(const Module& module, const Launch& launch, std::span<const std::byte> argument,
              at::Device device) override {
    const Driver& driver = Driver::get();
    const c10::DeviceGuard guard(device);
    require_context(driver, device);
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    void* arguments[] = {const_cast<std::byte*>(argument.data())};
    const auto threads = static_cast<unsigned>(launch.threads);
    driver.check(
        driver.launch(static_cast<const LoadedModule&>(module).function(launch.name),
                      static_cast<unsigned>(launch.grid), 1, 1, threads, 1, 1, 0, stream.native_handle(), arguments,
                      nullptr),
        "launching " + std::to_string(launch.grid) + " x " + std::to_string(launch.threads) + " threads of a fusion");
    return true;
  }

 private:
  [[nodiscard]] static int attribute(at::Device device, Attribute which) {
    const Driver& driver = Driver::get();
    int number = 0;
    int value = 0;
    driver.check(driver.device(&number, device.index()), "looking for a device");
    driver.check(driver.attribute(&value, which, number), "asking what a device is");
    return value;
  }

  std::mutex mutex_;
  std::map<std::pair<at::DeviceIndex, std::string>, std::shared_ptr<const Module>> modules_;
};

}  // namespace

Engine& driver_engine() {
  static auto* const kEngine = new DriverEngine;
  return *kEngine;
}

}  // namespace thunder::executors::cuda
