#include "bridge/generator_states.h"

#include <c10/util/Exception.h>

#include <mutex>

namespace thunder::bridge {

at::Tensor state_before(at::Generator generator, c10::function_ref<void(const at::Generator&)> draw) {
  const std::scoped_lock lock(generator.mutex());
  at::Tensor state = generator.get_state();
  const at::Generator copy = generator.clone();
  draw(copy);
  generator.set_state(copy.get_state());
  return state;
}

bool is_captured(const at::Generator& generator) {
  if (!generator.device().is_cuda()) return false;
  try {
    static_cast<void>(generator.get_offset());  // refused during a capture, and only then
  } catch (const c10::Error&) {
    return true;
  }
  return false;
}

}  // namespace thunder::bridge
