// Declarations that CUDA C++ for a kernel needs on the processor: included before the kernel's text, which the tests
// compile with the C++ compiler. The threads of a thread block take turns: each runs to the next barrier.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#define THUNDER_ON_HOST
#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

struct Index3 {
  unsigned x = 0;
};
static Index3 threadIdx, blockIdx, gridDim;

using std::abs;
using std::ceil;
using std::cos;
using std::erf;
using std::erfc;
using std::exp;
using std::expm1;
using std::fabs;
using std::floor;
using std::log;
using std::log1p;
using std::min;
using std::pow;
using std::rint;
using std::sin;
using std::sqrt;
using std::tanh;
using std::trunc;
template <typename T>
T rsqrt(T x) {
  return T(1) / sqrt(x);
}

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack{new char[1 << 16]};
  bool is_done = false;
};
static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static void (*body)();
static bool is_trapped = false;

inline void __syncthreads() {
  const unsigned own = threadIdx.x;
  swapcontext(&fibers[own].context, &scheduler);
}

/// The thread does not go on, and no thread block begins.
inline void trap() {
  is_trapped = true;
  __syncthreads();
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  static T given[1024];
  given[threadIdx.x] = value;
  __syncthreads();
  const T other = given[threadIdx.x ^ static_cast<unsigned>(mask)];
  __syncthreads();
  return other;
}

inline void run_thread() {
  body();
  fibers[threadIdx.x].is_done = true;
}

/// Runs one thread block.
inline void run_block(unsigned threads) {
  fibers.resize(threads);
  for (Fiber& fiber : fibers) {
    fiber.is_done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = 1 << 16;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, &run_thread, 0);
  }
  for (bool is_running = true; is_running && !is_trapped;) {
    is_running = false;
    for (unsigned i = 0; i < threads; ++i) {
      if (fibers[i].is_done) continue;
      threadIdx.x = i;
      swapcontext(&scheduler, &fibers[i].context);
      is_running = is_running || !fibers[i].is_done;
    }
  }
}

/// False: a thread has stopped the kernel.
inline bool run_grid(void (*function)(), std::int64_t grid, int threads) {
  is_trapped = false;
  body = function;
  gridDim.x = static_cast<unsigned>(grid);
  for (std::int64_t i = 0; i < grid && !is_trapped; ++i) {
    blockIdx.x = static_cast<unsigned>(i);
    run_block(static_cast<unsigned>(threads));
  }
  return !is_trapped;
}

struct Half;
struct Bfloat16;
inline float value_of(Half stored);
inline Half half_of(float value);
inline Bfloat16 bfloat16_of(float value);

/// Conversions that the kernel's text leaves to the target; behind its text.
#define THUNDER_CONVERSIONS_ON_HOST                                                                                   \
  inline float value_of(Half stored) {                                                                                \
    const int exponent = stored.bits >> 10 & 31;                                                                      \
    const int digits = stored.bits & 1023;                                                                            \
    const float sign = (stored.bits & 0x8000) != 0 ? -1.0F : 1.0F;                                                    \
    if (exponent == 31) return digits != 0 ? NAN : sign * INFINITY;                                                   \
    return sign * (exponent == 0 ? std::ldexp(float(digits), -24) : std::ldexp(float(1024 + digits), exponent - 25)); \
  }                                                                                                                   \
  inline Half half_of(float value) {                                                                                  \
    const unsigned short sign = std::signbit(value) ? 0x8000 : 0;                                                     \
    const float size = std::fabs(value);                                                                              \
    if (size != size) return Half{0x7e00};                                                                            \
    if (size >= 65520.0F) return Half{static_cast<unsigned short>(sign | 0x7c00)};                                    \
    if (size < 6.103515625e-05F)                                                                                      \
      return Half{static_cast<unsigned short>(sign | int(std::nearbyint(std::ldexp(size, 24))))};                     \
    const int exponent = std::ilogb(size);                                                                            \
    const int digits = int(std::nearbyint(std::ldexp(size, 10 - exponent)));                                          \
    return Half{static_cast<unsigned short>(sign | (((exponent + 15) << 10) + digits - 1024))};                       \
  }                                                                                                                   \
  inline Bfloat16 bfloat16_of(float value) {                                                                          \
    std::uint32_t bits;                                                                                               \
    std::memcpy(&bits, &value, 4);                                                                                    \
    if (value != value) return Bfloat16{0x7fc0};                                                                      \
    return Bfloat16{static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};                           \
  }
