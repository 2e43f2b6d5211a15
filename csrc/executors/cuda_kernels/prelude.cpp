#include "executors/cuda_kernels/prelude.h"

namespace thunder::executors::cuda {

// THUNDER_ON_HOST is defined where the text is compiled for the processor, by tests.
const std::string_view kPrelude = R"(
typedef long long Integer;

struct Bfloat16 { unsigned short bits; };
struct Half { unsigned short bits; };

template <typename T, int count>
struct alignas(sizeof(T) * count < 16 ? sizeof(T) * count : 16) Vector { T at[count]; };

__device__ inline float value_of(float stored) { return stored; }
__device__ inline double value_of(double stored) { return stored; }
__device__ inline float value_of(Bfloat16 stored) {
  const unsigned bits = static_cast<unsigned>(stored.bits) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
template <typename T> __device__ inline Integer value_of(T stored) { return stored; }

// Reads memory that no thread of the kernel writes: such a read may move before writes, and out of loops.
#ifdef THUNDER_ON_HOST
template <typename T> T read(const T* place) { return *place; }
#else
template <int alignment> struct PartOf { typedef uint4 Type; };
template <> struct PartOf<1> { typedef unsigned char Type; };
template <> struct PartOf<2> { typedef unsigned short Type; };
template <> struct PartOf<4> { typedef unsigned Type; };
template <> struct PartOf<8> { typedef uint2 Type; };
template <typename T> __device__ inline T read(const T* place) {
  typedef typename PartOf<alignof(T)>::Type Part;
  static_assert(sizeof(T) % sizeof(Part) == 0, "a type has parts of its alignment");
  T value;
  #pragma unroll
  for (int i = 0; i < sizeof(T) / sizeof(Part); ++i) {
    const Part part = __ldg(reinterpret_cast<const Part*>(place) + i);
    memcpy(reinterpret_cast<char*>(&value) + i * sizeof(Part), &part, sizeof(Part));
  }
  return value;
}
#endif

// The elements of a vector that lie in a row, where its first one is column `first`: that may be below 0.
template <int count, typename T> __device__ inline Vector<T, count> read_part(const T* row, Index first, Index columns) {
  Vector<T, count> made;
  #pragma unroll
  for (int e = 0; e < count; ++e) made.at[e] = first + e >= 0 && first + e < columns ? read(row + first + e) : T{};
  return made;
}
template <int count, typename T>
__device__ inline void write_part(T* row, const Vector<T, count>& made, Index first, Index columns) {
  #pragma unroll
  for (int e = 0; e < count; ++e) {
    if (first + e >= 0 && first + e < columns) row[first + e] = made.at[e];
  }
}

template <typename T> __device__ inline T real_of(Integer bits) {
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

// Kernels of a stream overlap where devices can: one begins, as far as it needs no memory, while the one before it ends.
// It lets the next one do so, and waits for the one before, in front of all that it reads and writes.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ inline void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ inline void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Brings memory into the cache that all multiprocessors share. What it holds is read later: others may still write it.
__device__ inline void prefetch(const void* place) { asm volatile("prefetch.global.L2 [%0];" :: "l"(place)); }
#else
__device__ inline void let_next_begin() {}
__device__ inline void wait_for_previous() {}
__device__ inline void prefetch(const void* place) {}
#endif

#ifndef THUNDER_ON_HOST
__device__ inline void trap() { asm("trap;"); }
__device__ inline float value_of(Half stored) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored.bits));
  return value;
}
__device__ inline Half half_of(float value) {
  Half stored;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored.bits) : "f"(value));
  return stored;
}
__device__ inline Bfloat16 bfloat16_of(float value) {
  Bfloat16 stored;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(stored.bits) : "f"(value));
  return stored;
}
#endif

// A number as memory of type T holds it.
template <typename T> struct Stored { template <typename V> __device__ static T of(V value) { return static_cast<T>(value); } };
template <> struct Stored<Bfloat16> { template <typename V> __device__ static Bfloat16 of(V value) { return bfloat16_of(static_cast<float>(value)); } };
template <> struct Stored<Half> { template <typename V> __device__ static Half of(V value) { return half_of(static_cast<float>(value)); } };

// Integers wrap around.
__device__ inline Integer add(Integer x, Integer y) { return static_cast<Integer>(static_cast<unsigned long long>(x) + static_cast<unsigned long long>(y)); }
__device__ inline Integer subtract(Integer x, Integer y) { return static_cast<Integer>(static_cast<unsigned long long>(x) - static_cast<unsigned long long>(y)); }
__device__ inline Integer multiply(Integer x, Integer y) { return static_cast<Integer>(static_cast<unsigned long long>(x) * static_cast<unsigned long long>(y)); }
__device__ inline float add(float x, float y) { return x + y; }
__device__ inline double add(double x, double y) { return x + y; }
__device__ inline float subtract(float x, float y) { return x - y; }
__device__ inline double subtract(double x, double y) { return x - y; }
__device__ inline float multiply(float x, float y) { return x * y; }
__device__ inline double multiply(double x, double y) { return x * y; }

// 1 / x and 2^x, to the last bit or two.
#ifdef THUNDER_ON_HOST
inline float power_of_two(float x) { return exp2f(x); }
template <typename T> T reciprocal(T x) { return T(1) / x; }
#else
__device__ inline float power_of_two(float x) {
  float made;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(made) : "f"(x));
  return made;
}
template <typename T> __device__ inline T reciprocal(T x) { return T(1) / x; }
template <> __device__ inline float reciprocal(float x) {
  float made;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(made) : "f"(x));
  return made;
}
#endif

template <typename T> __device__ inline T maximum(T x, T y) { return x >= y || x != x ? x : y; }
template <typename T> __device__ inline T minimum(T x, T y) { return x <= y || x != x ? x : y; }
#if !defined(THUNDER_ON_HOST) && __CUDA_ARCH__ >= 800
template <> __device__ inline float maximum(float x, float y) {
  float made;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(made) : "f"(x), "f"(y));
  return made;
}
template <> __device__ inline float minimum(float x, float y) {
  float made;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(made) : "f"(x), "f"(y));
  return made;
}
#endif
template <typename T> __device__ inline T negate(T x) { return -x; }
template <> __device__ inline Integer negate(Integer x) { return subtract(Integer(0), x); }
template <typename T> __device__ inline T absolute(T x) { return fabs(x); }
template <> __device__ inline Integer absolute(Integer x) { return x < 0 ? subtract(Integer(0), x) : x; }
template <typename T> __device__ inline T sign(T x) { return static_cast<T>((T(0) < x) - (x < T(0))); }
template <typename T> __device__ inline T relu(T x) { return x < T(0) ? T(0) : x; }
template <typename T> __device__ inline T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }
template <typename T> __device__ inline T normal_cdf(T x) { return T(0.5) * erfc(-x * T(0.70710678118654752440)); }
// As precise as PyTorch's; erfc, which is more so where the result is next to 0, takes most of the time of a gelu.
template <> __device__ inline float normal_cdf(float x) { return 0.5f + 0.5f * erf(x * 0.70710678f); }
// For results of 16 bits: within 1e-6 of the value, also next to 0, and twice as fast. The weight of the tail beyond |x|
// is a polynomial of 1 / (1 + 0.36 |x|), fitted for the least relative error, times the bell.
__device__ inline float bell(float x) { return power_of_two(x * x * -0.72134752f); }
__device__ inline float narrow_normal_cdf(float x) {
  const float t = reciprocal(1.0f + 0.36f * fabsf(x));
  float weight = 0.04705588033f * t - 0.1797633670f;
  weight = weight * t + 0.1809522993f;
  weight = weight * t + 0.02655044707f;
  weight = weight * t + 0.1397188645f;
  weight = weight * t + 0.1417725215f;
  weight = weight * t + 0.1437130408f;
  const float tail = weight * t * bell(x);
  return x < 0.0f ? tail : 1.0f - tail;
}
__device__ inline float narrow_gelu_slope(float x, float cdf) { return cdf + x * bell(x) * 0.39894228f; }
template <typename T> __device__ inline T tanh_tail(T x) {
  return sigmoid(T(-1.5957691216057307117) * fabs(x + T(0.044715) * x * x * x));
}
template <typename T> __device__ inline T gelu_weight(T x, T tail) { return x < T(0) ? tail : T(1) - tail; }
template <typename T> __device__ inline T gelu_of_tail(T x, T tail) { return x * gelu_weight(x, tail); }
template <typename T> __device__ inline T gelu_slope(T x, T cdf) { return cdf + x * exp(T(-0.5) * x * x) * T(0.39894228040143267794); }
template <typename T> __device__ inline T gelu_tanh_slope(T x, T tail) {
  const T inner = T(1.5957691216057307117) * (T(1) + T(3 * 0.044715) * x * x);
  return gelu_weight(x, tail) + x * tail * (T(1) - tail) * inner;
}
template <typename T> __device__ inline T silu_slope(T x, T y) { return y * (T(1) + x * (T(1) - y)); }
template <typename T> __device__ inline T sigmoid_backward(T x, T y) { return x * (T(1) - y) * y; }
template <typename T> __device__ inline T tanh_backward(T x, T y) { return x * (T(1) - y * y); }

// For results of 16 bits, and for sums, in which what is next to 0 counts little: the error grows with |x|, to 1e-5.
__device__ inline float narrow_exp(float x) { return power_of_two(x * 1.44269504f); }
__device__ inline double narrow_exp(double x) { return exp(x); }

// The largest number of a row, and the sum of exp(number - largest), from those of its parts (M. Milakov and
// N. Gimelshein, Online normalizer calculation for softmax, 2018). Where all are -infinity, the sum is 0.
template <typename T> __device__ inline T finite_shift(T largest) { return largest == T(value_of(Bfloat16{0xff80})) ? T(0) : largest; }
template <int count, typename T> __device__ inline void take_exponentials(T& largest, T& sum, const T (&given)[count]) {
  T next = largest;
  #pragma unroll
  for (int e = 0; e < count; ++e) next = maximum(next, given[e]);
  const T shift = finite_shift(next);
  sum *= narrow_exp(largest - shift);
  #pragma unroll
  for (int e = 0; e < count; ++e) sum += narrow_exp(given[e] - shift);
  largest = next;
}

// How values of several threads become one.
struct Sum { template <typename T> __device__ static T of(T x, T y) { return add(x, y); } };
struct Maximum { template <typename T> __device__ static T of(T x, T y) { return maximum(x, y); } };
struct Minimum { template <typename T> __device__ static T of(T x, T y) { return minimum(x, y); } };

// Count, mean, and sum of squared distances from it (B. P. Welford, 1962; T. F. Chan and others, 1979).
template <typename T>
struct Moments {
  T count, mean, squares;
  // `share` is 1 / count, with x; who calls it counts.
  __device__ void take(T x, T share) {
    const T distance = x - mean;
    mean += distance * share;
    squares += distance * (x - mean);
  }
};
template <typename T> __device__ inline Moments<T> add(Moments<T> x, Moments<T> y) {
  const T count = x.count + y.count;
  if (count == T(0)) return x;
  const T distance = y.mean - x.mean;
  const T share = y.count / count;
  return {count, x.mean + distance * share, x.squares + y.squares + distance * distance * x.count * share};
}

// Combines the values of the `threads` neighbouring threads of a row, of which a thread block has `rows`: all of them get
// the result. `shared` has room for one value of each warp.
template <typename Operation, int threads, int rows, typename T>
__device__ inline T reduce_neighbours(T value, T* shared) {
  constexpr int kWarp = 32;
  for (int offset = (threads < kWarp ? threads : kWarp) / 2; offset > 0; offset /= 2) {
    value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  if (threads > kWarp) {
    constexpr int kWarps = threads > kWarp ? threads / kWarp : 1;
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
    __syncthreads();
    const T* own = shared + threadIdx.x / threads * kWarps;
    value = own[0];
    for (int i = 1; i < kWarps; ++i) value = Operation::of(value, own[i]);
    __syncthreads();
  }
  return value;
}

// Combines the values of threads that are `rows` apart, of which there are `threads`, a power of two: all of them get the
// result. `shared` has room for one value of each thread.
template <typename Operation, int threads, int rows, typename T>
__device__ inline T reduce_apart(T value, T* shared) {
  if (threads == 1) return value;
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half * rows) {
      shared[threadIdx.x] = Operation::of(shared[threadIdx.x], shared[threadIdx.x + half * rows]);
    }
    __syncthreads();
  }
  value = shared[threadIdx.x % rows];
  __syncthreads();
  return value;
}

// Random numbers of neighbouring elements, above 0 and up to 1, at a state of seed, offset, threads and width, as
// PyTorch's dropout draws them (Philox 4x32-10).
struct RandomNumbers { float at[4]; };

__device__ inline RandomNumbers philox(unsigned long long seed, unsigned long long counter, unsigned long long thread) {
  unsigned low = static_cast<unsigned>(seed), high = static_cast<unsigned>(seed >> 32);
  unsigned x[4] = {static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), static_cast<unsigned>(thread),
                   static_cast<unsigned>(thread >> 32)};
  #pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long first = 0xD2511F53ull * x[0];
    const unsigned long long second = 0xCD9E8D57ull * x[2];
    x[0] = static_cast<unsigned>(second >> 32) ^ x[1] ^ low;
    x[1] = static_cast<unsigned>(second);
    x[2] = static_cast<unsigned>(first >> 32) ^ x[3] ^ high;
    x[3] = static_cast<unsigned>(first);
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  RandomNumbers made;
  #pragma unroll
  for (int i = 0; i < 4; ++i) made.at[i] = fmaf(static_cast<float>(x[i]), 2.3283064e-10f, 2.3283064e-10f / 2.0f);
  return made;
}

__device__ inline RandomNumbers random_numbers_of(const Integer* state, Index thread, Index call) {
  return philox(state[0], static_cast<unsigned long long>(state[1]) / 4 + call, thread);
}

__device__ inline float random_at(const Integer* state, Index element) {
  const Index threads = state[2], width = state[3];
  const Index chunk = element / width, turn = chunk / threads, thread = chunk - turn * threads, rest = element - chunk * width;
  const int lane = (width == 1 ? turn : rest) & 3;
  const Index call = width == 1 ? turn / 4 : width == 2 ? turn : turn * (width / 4) + rest / 4;
  const RandomNumbers all = random_numbers_of(state, thread, call);
  return lane == 0 ? all.at[0] : lane == 1 ? all.at[1] : lane == 2 ? all.at[2] : all.at[3];
}

// Four neighbours, the first of which is a multiple of four.
__device__ inline RandomNumbers random_numbers_at(const Integer* state, Index element) {
  if (state[3] < 4) {
    RandomNumbers made;
    for (int i = 0; i < 4; ++i) made.at[i] = random_at(state, element + i);
    return made;
  }
  const Index threads = state[2];
  const int shift = state[3] == 8 ? 3 : 2;
  const Index chunk = element >> shift, turn = chunk / threads;
  const Index rest = element - (chunk << shift);
  return random_numbers_of(state, chunk - turn * threads, (turn << (shift - 2)) + rest / 4);
}
)";

std::size_t prelude_end(std::string_view text) { return text.find(kPrelude) + kPrelude.size(); }

}  // namespace thunder::executors::cuda
