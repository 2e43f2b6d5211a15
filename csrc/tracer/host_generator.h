#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Scalar.h>
#include <c10/util/ArrayRef.h>

#include <string>

namespace thunder::tracer {

/// A source of random numbers that is not PyTorch's, as `random.Random` of Python. As a generator, its state is put
/// back and goes on wherever those of PyTorch's generators do.
class HostGenerator : public c10::GeneratorImpl {
 public:
  /// By its device, kernels of PyTorch's know that it is none of theirs.
  HostGenerator() : GeneratorImpl(c10::Device(c10::kMeta), c10::DispatchKeySet(c10::DispatchKey::CPU)) {}
  /// Draws the next number, by a method of the source.
  [[nodiscard]] virtual c10::Scalar draw(const std::string& method, c10::ArrayRef<c10::Scalar> arguments) = 0;

  // Nobody seeds it but the program.
  void set_current_seed(std::uint64_t seed) final;
  void set_offset(std::uint64_t offset) final;
  [[nodiscard]] std::uint64_t get_offset() const final { return 0; }
  [[nodiscard]] std::uint64_t current_seed() const final { return 0; }
  std::uint64_t seed() final { return 0; }

 private:
  [[nodiscard]] c10::GeneratorImpl* clone_impl() const final;
};

/// `thunder::draw_number(generator, method, arguments, dtype)`, a tensor of one number.
[[nodiscard]] at::Tensor draw_number(const at::Generator& generator, const std::string& method,
                                     c10::ArrayRef<c10::Scalar> arguments, c10::ScalarType dtype);

}  // namespace thunder::tracer
