#include "bridge/counted_dropout.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/philox.h"
#include "base/rounding.h"
#include "bridge/generator_states.h"
#include "bridge/random.h"

namespace thunder::bridge {
namespace {

constexpr std::int64_t kThreadsOfBlock = 256;

using State = std::array<std::int64_t, philox::kStateNumbers>;

/// How PyTorch's kernel on a device draws.
struct DropoutKernel {
  std::int64_t most_threads = 0;
  std::map<std::int64_t, std::int64_t> widths;  ///< by bytes of an element: the widest vectors
};

std::int64_t threads_for(std::int64_t elements, std::int64_t most) {
  return std::min(divide_up(elements, kThreadsOfBlock) * kThreadsOfBlock, most);
}

/// Numbers that each thread takes from its subsequence.
std::int64_t numbers_of_thread(std::int64_t elements, std::int64_t threads) {
  return ((elements - 1) / (threads * 4) + 1) * 4;
}

/// `bytes`: of an element. `address`: where the input begins.
std::int64_t width_for(std::int64_t elements, std::int64_t widest, std::int64_t bytes, std::uintptr_t address) {
  while (elements % widest != 0 || address % static_cast<std::uintptr_t>(widest * bytes) != 0) {
    if (widest == 1) break;
    widest /= 2;
  }
  return widest;
}

/// By what PyTorch's dropout moves the generator on.
std::int64_t numbers_taken(at::Generator& generator, const at::Tensor& input) {
  const std::uint64_t before = generator.get_offset();
  static_cast<void>(at::_fused_dropout(input, 0.5, generator));
  return static_cast<std::int64_t>(generator.get_offset() - before);
}

/// Threads take four numbers each up to four elements for each of them: that many elements are looked for.
std::int64_t most_threads_of(at::Generator& generator, c10::Device device) {
  const at::Tensor input = at::empty({INT64_C(1) << 24U}, at::TensorOptions(device).dtype(at::kHalf));
  std::int64_t least = 1;  // in units of four elements for each thread of a block
  std::int64_t end = input.numel() / (4 * kThreadsOfBlock);
  if (numbers_taken(generator, input) == 4) return input.numel();
  while (least + 1 < end) {
    const std::int64_t middle = (least + end) / 2;
    const bool is_enough = numbers_taken(generator, input.slice(0, 0, middle * 4 * kThreadsOfBlock)) == 4;
    (is_enough ? least : end) = middle;
  }
  return least * kThreadsOfBlock;
}

/// The width with which our masks are those of PyTorch's kernel for a dtype; 4, with masks of our own, where none is.
std::int64_t widest_of(at::Generator& generator, at::ScalarType dtype, c10::Device device, std::int64_t most_threads) {
  const std::int64_t elements = 8 * (most_threads + 3 * kThreadsOfBlock);
  const at::Tensor input = at::empty({elements}, at::TensorOptions(device).dtype(dtype));
  const auto seed = static_cast<std::int64_t>(generator.current_seed());
  const auto offset = static_cast<std::int64_t>(generator.get_offset());
  const at::Tensor drawn = std::get<1>(at::_fused_dropout(input, 0.5, generator)).to(at::kCPU, at::kByte);
  const auto* mask = drawn.const_data_ptr<std::uint8_t>();
  constexpr std::int64_t kCompared = 4096;  // elements at the beginning, and at the end
  for (const std::int64_t width : {8, 4, 2, 1}) {
    const State state{seed, offset, threads_for(elements, most_threads), width};
    const auto is_alike = [&](std::int64_t i) {
      return (mask[i] != 0) == (philox::uniform_at(state.data(), i) < 0.5F);
    };
    bool are_alike = true;
    for (std::int64_t i = 0; i < kCompared && are_alike; ++i) are_alike = is_alike(i) && is_alike(elements - 1 - i);
    if (are_alike) return width;
  }
  constexpr std::int64_t kOurs = 4;
  return kOurs;
}

const DropoutKernel& kernel_on(c10::Device device) {
  static std::mutex mutex;
  static auto* const kKernels = new std::map<c10::DeviceIndex, DropoutKernel>;
  const std::scoped_lock lock(mutex);
  const auto known = kKernels->find(device.index());
  if (known != kKernels->end()) return known->second;
  DropoutKernel kernel;
  at::Generator generator = make_generator(device);
  kernel.most_threads = most_threads_of(generator, device);
  for (const at::ScalarType dtype : {at::kHalf, at::kFloat, at::kDouble}) {
    kernel.widths[static_cast<std::int64_t>(c10::elementSize(dtype))] =
        widest_of(generator, dtype, device, kernel.most_threads);
  }
  return kKernels->emplace(device.index(), std::move(kernel)).first->second;
}

at::Tensor on_device(const State& state, c10::Device device) {
  const at::Tensor host = at::tensor(at::ArrayRef<std::int64_t>(state), at::kLong);
  return host.to(device, /*non_blocking=*/true);
}

/// The seed is drawn by the graph itself, in each of its replays.
at::Tensor captured_state(const at::Generator& source, c10::Device device) {
  const at::Tensor state = at::empty({philox::kStateNumbers}, at::TensorOptions(device).dtype(at::kLong));
  state.random_(source);
  state.select(0, philox::kOffset).zero_();
  state.select(0, philox::kThreads).fill_(INT64_C(1) << 16U);
  state.select(0, philox::kWidth).fill_(4);
  return state;
}

// --- numbers of 32 bits in tensors of 64

at::Tensor low_word(const at::Tensor& x) { return x.bitwise_and(INT64_C(0xFFFFFFFF)); }
at::Tensor high_word(const at::Tensor& x) { return low_word(x.__rshift__(32)); }

struct Words {
  at::Tensor high;
  at::Tensor low;
};

/// The product of words and a number of 32 bits, which is more than a signed integer holds.
Words multiply(const at::Tensor& x, std::int64_t by) {
  const at::Tensor low = x * (by & 0xFFFF);                     // 48 bits
  const at::Tensor high = x * (by >> 16) + low.__rshift__(16);  // 49 bits, from bit 16 on
  return {low_word(high.__rshift__(16)), low_word(high.__lshift__(16) + low.bitwise_and(INT64_C(0xFFFF)))};
}

}  // namespace

at::Tensor dropout_state(at::IntArrayRef size, at::ScalarType dtype, c10::Device device,
                         const std::optional<at::Tensor>& input) {
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  if (device.is_meta()) return at::empty({philox::kStateNumbers}, options);
  if (!device.is_cuda())
    throw UserError(ErrorKind::kValue, "dropout_state: expected a CUDA device, got " + device.str());
  at::Generator source = at::globalContext().defaultGenerator(device);
  if (is_captured(source)) return captured_state(source, device);
  const DropoutKernel& kernel = kernel_on(source.device());
  const std::int64_t elements = std::max<std::int64_t>(c10::multiply_integers(size), 1);
  const std::int64_t threads = threads_for(elements, kernel.most_threads);
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  const std::uintptr_t address = input ? reinterpret_cast<std::uintptr_t>(input->const_data_ptr()) : 0;
  const std::int64_t width = width_for(elements, kernel.widths.at(bytes), bytes, address);
  State state{};
  {
    const std::scoped_lock lock(source.mutex());
    const std::uint64_t offset = source.get_offset();
    source.set_offset(offset + static_cast<std::uint64_t>(numbers_of_thread(elements, threads)));
    state = {static_cast<std::int64_t>(source.current_seed()), static_cast<std::int64_t>(offset), threads, width};
  }
  return on_device(state, device);
}

at::Tensor dropout_mask(const at::Tensor& state, at::IntArrayRef size, at::IntArrayRef stride, double p) {
  const auto options = at::TensorOptions(state.device()).dtype(at::kBool);
  if (state.is_meta()) return at::empty_strided(size, stride, options);
  if (!state.is_cpu()) return dropout_mask_by_operations(state, size, stride, p);
  at::Tensor mask = at::empty_strided(size, stride, options);
  const auto kept = static_cast<float>(1 - p);
  const auto* numbers = state.const_data_ptr<std::int64_t>();
  auto* const memory = static_cast<bool*>(mask.mutable_data_ptr());
  for (std::int64_t i = 0; i < mask.numel(); ++i) memory[i] = philox::uniform_at(numbers, i) < kept;
  return mask;
}

at::Tensor dropout_mask_by_operations(const at::Tensor& state, at::IntArrayRef size, at::IntArrayRef stride, double p) {
  const std::int64_t elements = c10::multiply_integers(size);
  const at::Tensor element = at::arange(elements, state.options());
  const auto number = [&](std::int64_t i) { return state.select(0, i); };
  const auto divide = [](const at::Tensor& x, const at::Tensor& by) { return at::div(x, by, "floor"); };
  const at::Tensor threads = number(philox::kThreads);
  const at::Tensor width = number(philox::kWidth);
  const at::Tensor chunk = divide(element, width);
  const at::Tensor turn = divide(chunk, threads);
  const at::Tensor rest = element - chunk * width;
  const at::Tensor is_single = width.eq(1);
  const at::Tensor calls = at::clamp_min(width, 4).floor_divide(4);  // for each chunk
  const at::Tensor call = at::where(is_single, turn.floor_divide(4), turn * calls + rest.floor_divide(4));
  const at::Tensor lane = at::where(is_single, turn, rest).bitwise_and(3);
  const at::Tensor counter = number(philox::kOffset).floor_divide(4) + call;
  const at::Tensor thread = chunk - turn * threads;
  std::array<at::Tensor, 4> x{low_word(counter), high_word(counter), low_word(thread), high_word(thread)};
  at::Tensor low = low_word(number(philox::kSeed));
  at::Tensor high = high_word(number(philox::kSeed));
  for (int round = 0; round < 10; ++round) {
    const Words first = multiply(x[0], 0xD2511F53);
    const Words second = multiply(x[2], 0xCD9E8D57);
    x = {second.high.bitwise_xor(x[1]).bitwise_xor(low), second.low, first.high.bitwise_xor(x[3]).bitwise_xor(high),
         first.low};
    low = low_word(low + INT64_C(0x9E3779B9));
    high = low_word(high + INT64_C(0xBB67AE85));
  }
  at::Tensor chosen = x[0];
  for (int i = 1; i < 4; ++i) chosen = at::where(lane.eq(i), x[static_cast<std::size_t>(i)], chosen);
  constexpr float kStep = 2.3283064e-10F;
  const at::Tensor uniform =
      (chosen.to(at::kFloat).to(at::kDouble) * static_cast<double>(kStep) + static_cast<double>(kStep / 2))
          .to(at::kFloat);
  const at::Tensor kept = uniform < static_cast<double>(static_cast<float>(1 - p));
  at::Tensor mask = at::empty_strided(size, stride, state.options().dtype(at::kBool));
  mask.as_strided({elements}, {1}).copy_(kept);
  return mask;
}

}  // namespace thunder::bridge
