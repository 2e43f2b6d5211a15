#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "check.h"
#include "executors/cpu/bernoulli.h"

using thunder::executors::cpu::fill_bernoulli;

namespace {

/// MKL's generator draws there.
bool is_intel() {
#ifdef __x86_64__
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

bool same_state(const at::Generator& left, const at::Generator& right) {
  return at::equal(at::Tensor(left.getIntrusivePtr()->get_state()), at::Tensor(right.getIntrusivePtr()->get_state()));
}

}  // namespace

TEST(dense_tensors_are_filled_as_pytorch_fills_them) {
  for (const at::ScalarType dtype : {at::kBool, at::kInt, at::kHalf, at::kFloat, at::kDouble}) {
    at::Generator ours = at::detail::createCPUGenerator(3);
    at::Generator eager = at::detail::createCPUGenerator(3);
    for (const std::int64_t count : {1, 100, 312, 40000}) {
      const at::Tensor filled = at::empty({count}, dtype);
      const bool is_ours = fill_bernoulli(filled, 0.3, ours);
      CHECK(is_ours || is_intel());  // where it depends on the library whether numbers are drawn as everywhere
      if (!is_ours) return;
      CHECK(at::equal(filled, at::empty({count}, dtype).bernoulli_(0.3, eager)));
      CHECK(same_state(ours, eager));
    }
  }
}

TEST(what_is_left_to_pytorch_draws_nothing) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  CHECK(!fill_bernoulli(at::empty({8, 8}).select(1, 0), 0.3, generator));
  CHECK(!fill_bernoulli(at::empty({8}, at::kComplexFloat), 0.3, generator));
  CHECK(!fill_bernoulli(at::empty({8}), 1.5, generator));
  CHECK(!fill_bernoulli(at::empty({8}), std::nan(""), generator));
  CHECK(same_state(generator, at::detail::createCPUGenerator(3)));
}
