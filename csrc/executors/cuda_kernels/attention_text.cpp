#include "executors/cuda_kernels/attention_text.h"

namespace thunder::executors::cuda {

// A thread block takes the queries of a group's heads, and some of the keys, which are read once for all of these. The
// threads of a key have some columns each; those of several keys have a softmax each, of what they have seen, and put
// these together in the end (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018).
const std::string_view kAttentionText = R"(
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr int kKeysAtOnce = kThreads / kThreadsOfKey;
constexpr int kMasks = kHasMask ? (kMaskIsByRow ? kRows : 1) : 0;
constexpr float kLog2E = 1.44269504f;

typedef Vector<Element, kVector> Columns;

// A softmax over some keys, as far as it is known: the largest score, and sums of weights relative to that one.
template <int count> struct Share {
  float maximum;
  float sum;
  float at[count];
};

__device__ inline float minus_infinity() { return value_of(Bfloat16{0xff80}); }
// Scores are compared with it: where there is none but -infinity, all weights are 0.
__device__ inline float base_of(float maximum) { return maximum == minus_infinity() ? 0.0f : maximum; }
__device__ inline float weight_of(float score, float base) { return power_of_two((score - base) * kLog2E); }
__device__ inline float larger(float x, float y) { return x > y ? x : y; }

template <int count> __device__ inline void add_share(Share<count>& to, const Share<count>& from) {
  const float maximum = larger(to.maximum, from.maximum);
  const float base = base_of(maximum);
  const float own = weight_of(to.maximum, base), other = weight_of(from.maximum, base);
  to.maximum = maximum;
  to.sum = to.sum * own + from.sum * other;
  #pragma unroll
  for (int e = 0; e < count; ++e) to.at[e] = to.at[e] * own + from.at[e] * other;
}

// A number as the element of a result.
__device__ inline Element quotient(float sum_of_values, float sum) {
  return Stored<Element>::of(sum == 0.0f ? 0.0f : sum_of_values / sum);
}

// The number that a mask adds to a score.
__device__ inline float masked(const MaskElement* place) {
  if (kMaskIsBool) return value_of(*place) != 0 ? 0.0f : minus_infinity();
  return static_cast<float>(value_of(*place));
}

struct Problem {
  Index groups, keys, keys_of_block, blocks_of_group;
  Index query[4], key[4], value[4], mask[4], result[4];
  float scale;
};

__device__ inline Problem problem_of(const Parameters& p) {
  Problem made;
  const Integer* number = p.numbers;
  made.groups = static_cast<Index>(*number++);
  made.keys = static_cast<Index>(*number++);
  made.keys_of_block = static_cast<Index>(*number++);
  made.blocks_of_group = static_cast<Index>(*number++);
  #pragma unroll
  for (int i = 0; i < 4; ++i) made.query[i] = static_cast<Index>(*number++);
  #pragma unroll
  for (int i = 0; i < 4; ++i) made.key[i] = static_cast<Index>(*number++);
  #pragma unroll
  for (int i = 0; i < 4; ++i) made.value[i] = static_cast<Index>(*number++);
  #pragma unroll
  for (int i = 0; i < 4; ++i) made.mask[i] = static_cast<Index>(*number++);
  #pragma unroll
  for (int i = 0; i < 4; ++i) made.result[i] = static_cast<Index>(*number++);
  made.scale = real_of<float>(*number);
  return made;
}

// Where row `row` of a group is: the offset of its head and of its query.
__device__ inline Index offset_of_row(const Index* strides, Index batch, Index group, int row) {
  return batch * strides[0] + (group * kHeadsOfGroup + row / kQueries) * strides[1] + row % kQueries * strides[2];
}

extern "C" __global__ void __launch_bounds__(kThreads) FUNCTION(const Parameters p) {
  let_next_begin();
  wait_for_previous();
  const Problem of = problem_of(p);
  const Index block = static_cast<Index>(blockIdx.x);
  const Index share = block % of.blocks_of_group;
  const Index group = block / of.blocks_of_group % of.groups;
  const Index batch = block / of.blocks_of_group / of.groups;
  const int x = threadIdx.x % kThreadsOfKey;
  const int y = threadIdx.x / kThreadsOfKey;
  const int column = x * kVector;
  const bool has_columns = column < kColumns;
  const Element* const query = static_cast<const Element*>(p.arrays[0]);
  const Element* const key = static_cast<const Element*>(p.arrays[1]) + batch * of.key[0] + group * of.key[1] + column;
  const Element* const value = static_cast<const Element*>(p.arrays[2]) + batch * of.value[0] + group * of.value[1] + column;
  const MaskElement* const mask = static_cast<const MaskElement*>(p.arrays[kHasMask ? 3 : 0]);
  Element* const result = static_cast<Element*>(p.arrays[kHasMask ? 4 : 3]);
  const Index begin = share * of.keys_of_block;
  const Index end = min(begin + of.keys_of_block, of.keys);

  float queries[kRows][kVector];
  Share<kVector> shares[kRows];
  #pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Columns loaded = Columns();
    if (has_columns) loaded = read(reinterpret_cast<const Columns*>(query + offset_of_row(of.query, batch, group, r) + column));
    shares[r].maximum = minus_infinity();
    shares[r].sum = 0.0f;
    #pragma unroll
    for (int e = 0; e < kVector; ++e) {
      queries[r][e] = value_of(loaded.at[e]);
      shares[r].at[e] = 0.0f;
    }
  }

  for (Index base_of_all = begin; base_of_all < end; base_of_all += kKeysAtOnce * kUnrolled) {
    float added[kUnrolled][kMasks > 0 ? kMasks : 1];
    bool takes_part[kUnrolled];
    Columns keys[kUnrolled], values[kUnrolled];
    #pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
      const Index at = base_of_all + u * kKeysAtOnce + y;
      takes_part[u] = at < end && kMasks == 0;
      #pragma unroll
      for (int r = 0; r < kMasks; ++r) {
        added[u][r] = minus_infinity();
        if (at < end) added[u][r] = masked(mask + offset_of_row(of.mask, batch, group, r) + at * of.mask[3]);
        takes_part[u] = takes_part[u] || added[u][r] != minus_infinity();
      }
    }
    // Keys that take no part are not read: most of a cache that is not full yet.
    #pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
      const Index at = base_of_all + u * kKeysAtOnce + y;
      keys[u] = Columns();
      values[u] = Columns();
      if (!takes_part[u] || !has_columns) continue;
      keys[u] = read(reinterpret_cast<const Columns*>(key + at * of.key[2]));
      values[u] = read(reinterpret_cast<const Columns*>(value + at * of.value[2]));
    }
    float scores[kUnrolled][kRows];
    #pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
      #pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float score = 0.0f;
        #pragma unroll
        for (int e = 0; e < kVector; ++e) score += queries[r][e] * value_of(keys[u].at[e]);
        #pragma unroll
        for (int offset = kThreadsOfKey / 2; offset > 0; offset /= 2) score += __shfl_xor_sync(0xffffffffu, score, offset);
        score *= of.scale;
        if (kMasks > 0) score += added[u][kMasks > 1 ? r : 0];
        scores[u][r] = takes_part[u] ? score : minus_infinity();
      }
    }
    #pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float maximum = shares[r].maximum;
      #pragma unroll
      for (int u = 0; u < kUnrolled; ++u) maximum = larger(maximum, scores[u][r]);
      const float base = base_of(maximum);
      const float before = weight_of(shares[r].maximum, base);
      shares[r].maximum = maximum;
      shares[r].sum *= before;
      #pragma unroll
      for (int e = 0; e < kVector; ++e) shares[r].at[e] *= before;
      #pragma unroll
      for (int u = 0; u < kUnrolled; ++u) {
        const float weight = weight_of(scores[u][r], base);
        shares[r].sum += weight;
        #pragma unroll
        for (int e = 0; e < kVector; ++e) shares[r].at[e] += weight * value_of(values[u].at[e]);
      }
    }
  }

  // The keys of a warp.
  #pragma unroll
  for (int offset = kThreadsOfKey; offset < kWarp; offset *= 2) {
    #pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Share<kVector> other;
      other.maximum = __shfl_xor_sync(0xffffffffu, shares[r].maximum, offset);
      other.sum = __shfl_xor_sync(0xffffffffu, shares[r].sum, offset);
      #pragma unroll
      for (int e = 0; e < kVector; ++e) other.at[e] = __shfl_xor_sync(0xffffffffu, shares[r].at[e], offset);
      add_share(shares[r], other);
    }
  }
  // The warps of a thread block.
  __shared__ float maxima[kWarps][kRows];
  __shared__ float sums[kWarps][kRows];
  __shared__ float sums_of_values[kWarps][kRows][kColumns];
  const int warp = threadIdx.x / kWarp;
  if (threadIdx.x % kWarp < kThreadsOfKey) {
    #pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (x == 0) maxima[warp][r] = shares[r].maximum;
      if (x == 0) sums[warp][r] = shares[r].sum;
      #pragma unroll
      for (int e = 0; e < kVector; ++e) {
        if (has_columns) sums_of_values[warp][r][column + e] = shares[r].at[e];
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kRows * kColumns; i += kThreads) {
    const int r = i / kColumns;
    const int c = i % kColumns;
    Share<1> all = {maxima[0][r], sums[0][r], {sums_of_values[0][r][c]}};
    #pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      const Share<1> other = {maxima[w][r], sums[w][r], {sums_of_values[w][r][c]}};
      add_share(all, other);
    }
    if (kIsShared) {
      Share<1>* const scratch = static_cast<Share<1>*>(p.scratch);
      scratch[block * (kRows * kColumns) + i] = all;
    } else {
      result[offset_of_row(of.result, batch, group, r) + c * of.result[3]] = quotient(all.at[0], all.sum);
    }
  }
}

// Adds the shares of a group's thread blocks, each thread those of an element.
extern "C" __global__ void __launch_bounds__(kThreads) FUNCTION_finish(const Parameters p) {
  let_next_begin();
  wait_for_previous();
  const Problem of = problem_of(p);
  const Index block = static_cast<Index>(blockIdx.x);
  const Index group = block % of.groups;
  const Index batch = block / of.groups;
  Element* const result = static_cast<Element*>(p.arrays[kHasMask ? 4 : 3]);
  const Share<1>* const scratch = static_cast<const Share<1>*>(p.scratch) + block * of.blocks_of_group * (kRows * kColumns);
  for (int i = threadIdx.x; i < kRows * kColumns; i += kThreads) {
    Share<1> all = scratch[i];
    for (Index share = 1; share < of.blocks_of_group; ++share) add_share(all, scratch[share * (kRows * kColumns) + i]);
    const Index place = offset_of_row(of.result, batch, group, i / kColumns) + i % kColumns * of.result[3];
    result[place] = quotient(all.at[0], all.sum);
  }
}
)";

}  // namespace thunder::executors::cuda
