#include "tracer/host_generator.h"

#include <ATen/ops/scalar_tensor.h>

#include "base/error.h"

namespace thunder::tracer {

void HostGenerator::set_current_seed(std::uint64_t) {
  throw InternalError("tracer", "a generator of Python is seeded");
}
void HostGenerator::set_offset(std::uint64_t) { throw InternalError("tracer", "a generator of Python has no offset"); }
c10::GeneratorImpl* HostGenerator::clone_impl() const {
  throw InternalError("tracer", "a generator of Python is copied");
}

at::Tensor draw_number(const at::Generator& generator, const std::string& method, c10::ArrayRef<c10::Scalar> arguments,
                       c10::ScalarType dtype) {
  auto* source = dynamic_cast<HostGenerator*>(generator.unsafeGetGeneratorImpl());
  TORCH_CHECK_TYPE(source != nullptr, "thunder::draw_number: expected a generator of Python or NumPy, got PyTorch's");
  return at::scalar_tensor(source->draw(method, arguments), at::TensorOptions(dtype));
}

}  // namespace thunder::tracer
