#include "executors/cpu/bernoulli.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <ATen/ops/bernoulli_native.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/rounding.h"
#include "executors/cpu/threads.h"
#include "executors/tiles/kernels.h"

namespace thunder::executors::cpu {
namespace {

static_assert(kTwisterBlock == at::MERSENNE_STATE_N);

/// The number one in memory; nullopt: PyTorch draws no such numbers.
std::optional<std::uint64_t> bits_of_one(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
      return 1;
    case at::kHalf:
      return 0x3c00;
    case at::kBFloat16:
      return 0x3f80;
    case at::kFloat:
      return std::bit_cast<std::uint32_t>(1.0F);
    case at::kDouble:
      return std::bit_cast<std::uint64_t>(1.0);
    default:
      return std::nullopt;
  }
}

/// Held for microseconds, by threads that would spin anyway: sleeping and waking takes longer.
class Turn {
 public:
  explicit Turn(std::atomic_flag& taken) : taken_(taken) {
    while (taken_.test_and_set(std::memory_order_acquire)) {
      for (int spins = 0; taken_.test(std::memory_order_relaxed); ++spins) {
        if (spins > 1000) std::this_thread::yield();
      }
    }
  }
  ~Turn() { taken_.clear(std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic_flag& taken_;
};

/// Draws two words for each element. States follow one another, one block at a time; what is made of a block is
/// independent of the others. So threads take turns in making the next few blocks, and each goes on with its own.
class Drawing {
 public:
  Drawing(const at::Tensor& tensor, double p, std::uint64_t one, at::mt19937_data_pod& state)
      : state_(state),
        count_(tensor.numel()),
        element_size_(static_cast<std::int64_t>(tensor.element_size())),
        results_(static_cast<char*>(tensor.mutable_data_ptr())),
        // x < p of x = bits / 2^53 is bits < p 2^53.
        threshold_(static_cast<std::uint64_t>(std::ceil(std::ldexp(p, 53)))),
        one_(one),
        kernel_(kernels().bernoulli(tensor.element_size())) {}

  void run() {
    // The twister makes a block when it needs the first word of it, so that one may be left for half an element.
    const std::int64_t rest = state_.left_ - 1;
    from_rest_ = std::min(count_, rest / 2);
    kernel_(results_, state_.state_.data() + state_.next_, threshold_, one_, from_rest_);
    if (2 * count_ <= rest) {
      state_.left_ -= static_cast<int>(2 * count_);
      state_.next_ += static_cast<std::uint32_t>(2 * count_);
      return;
    }
    carried_ = rest % 2;
    const std::int64_t words = 2 * (count_ - from_rest_) - carried_;
    blocks_ = divide_up(words, kTwisterBlock);
    const auto draw = [](void* drawing, std::int64_t) { static_cast<Drawing*>(drawing)->draw_blocks(); };
    const std::int64_t tasks = divide_up(blocks_, kBlocksAtOnce);
    run_tasks(tasks, tasks > 2, draw, this);
    state_.next_ = static_cast<std::uint32_t>(words - (blocks_ - 1) * kTwisterBlock);
    state_.left_ = kTwisterBlock + 1 - static_cast<int>(state_.next_);
  }

 private:
  static constexpr std::int64_t kBlocksAtOnce = 32;

  void draw_blocks() {
    std::array<std::uint32_t, (kBlocksAtOnce + 1) * kTwisterBlock> words;  // NOLINT: written below
    std::int64_t first = 0;
    std::int64_t end = 0;
    {
      const Turn turn(taken_);
      first = made_;
      end = made_ = std::min(first + kBlocksAtOnce, blocks_);
      std::uint32_t* block = words.data();
      std::ranges::copy(state_.state_, block);
      for (std::int64_t i = first; i < end; ++i, block += kTwisterBlock) kernels().twist(block + kTwisterBlock, block);
      std::copy_n(block, kTwisterBlock, state_.state_.data());
    }
    const std::int64_t begin = from_rest_ + first * kTwisterBlock / 2;
    const std::int64_t count = std::min(count_, from_rest_ + end * kTwisterBlock / 2) - begin;
    kernel_(results_ + begin * element_size_, words.data() + kTwisterBlock - carried_, threshold_, one_, count);
  }

  at::mt19937_data_pod& state_;
  std::int64_t count_;
  std::int64_t element_size_;
  char* results_;
  std::uint64_t threshold_;
  std::uint64_t one_;
  BernoulliKernel kernel_;
  std::int64_t from_rest_ = 0;  ///< elements made of words that the state still had
  std::int64_t carried_ = 0;    ///< words left of it
  std::int64_t blocks_ = 0;     ///< made after it
  std::atomic_flag taken_;      ///< for state_, made_
  std::int64_t made_ = 0;
};

bool draw(const at::Tensor& tensor, double p, at::CPUGeneratorImpl& generator) {
  const std::optional<std::uint64_t> one = bits_of_one(tensor.scalar_type());
  if (!one || !(p >= 0 && p <= 1)) return false;
  const std::scoped_lock lock(generator.mutex_);
  at::mt19937 engine = generator.engine();
  at::mt19937_data_pod state = engine.data();
  // Fresh from a seed, or in the middle of a block.
  if (state.left_ != 1 && state.next_ + static_cast<std::uint32_t>(state.left_) != kTwisterBlock + 1) return false;
  Drawing(tensor, p, *one, state).run();
  engine.set_data(state);
  generator.set_engine(engine);
  return true;
}

bool same_numbers_as_eager(at::ScalarType dtype) {
  constexpr std::int64_t kCount = 1000;
  const auto empty = [&] {
    return at::Tensor(at::detail::empty_generic({kCount}, c10::GetCPUAllocator(),
                                                c10::DispatchKeySet(c10::DispatchKey::CPU), dtype, std::nullopt));
  };
  at::Tensor ours = empty();
  at::Tensor eager = empty();
  at::Generator generator = at::detail::createCPUGenerator(17);
  auto& state = *generator.get<at::CPUGeneratorImpl>();
  state.random();
  const std::shared_ptr<at::CPUGeneratorImpl> copy = state.clone();
  if (!draw(ours, 0.3, *copy)) return false;
  at::native::bernoulli_(eager, 0.3, generator);
  return std::memcmp(ours.const_data_ptr(), eager.const_data_ptr(), ours.nbytes()) == 0 &&
         state.random64() == copy->random64();
}

bool draws_as_eager() {
  static const bool kEqual = same_numbers_as_eager(at::kBool) && same_numbers_as_eager(at::kDouble);
  return kEqual;
}

}  // namespace

bool fill_bernoulli(const at::Tensor& tensor, double p, const std::optional<at::Generator>& generator) {
  const bool is_plain =
      tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_neg() && tensor.is_non_overlapping_and_dense();
  if (!is_plain || !draws_as_eager()) return false;
  return draw(tensor, p,
              *at::get_generator_or_default<at::CPUGeneratorImpl>(generator, at::detail::getDefaultCPUGenerator()));
}

}  // namespace thunder::executors::cpu
