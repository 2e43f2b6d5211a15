#include "bridge/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>

namespace thunder::bridge {

at::Tensor random_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

at::Generator make_generator(c10::Device device) {
  if (device.is_cpu()) return at::detail::createCPUGenerator();
  return at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
}

}  // namespace thunder::bridge
