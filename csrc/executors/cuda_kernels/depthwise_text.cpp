#include "executors/cuda_kernels/depthwise_text.h"

namespace thunder::executors::cuda {

// A thread takes two channels of a strip of a line of results. It reads the rows of the images that the strip needs,
// one after the other: each element once for the strip, and from the cache for the lines below, which the same thread
// block takes. The filters of the thread block's channels are in shared memory, as float.
const std::string_view kDepthwiseText = R"(
typedef Vector<Element, 2> Channels;
typedef Vector<float, 2> Weights;

constexpr int kWeights = kKernelHeight * kKernelWidth;
// The filters of two neighbouring places begin in different banks.
constexpr int kPitch = 2 * kPairs + 2;
constexpr int kReach = kStrip + kKernelWidth - 1;
constexpr int kThreads = kPairs * kLines;

extern "C" __global__ void __launch_bounds__(kThreads, kBlocksAtOnce) FUNCTION(const Parameters p) {
  let_next_begin();
  __shared__ Weights weights[kWeights * kPitch / 2];
  const Index lines = static_cast<Index>(p.numbers[0]), pairs = static_cast<Index>(p.numbers[1]);
  const Index strips = static_cast<Index>(p.numbers[2]), steps = static_cast<Index>(p.numbers[3]);
  const Index height = static_cast<Index>(p.numbers[4]), width = static_cast<Index>(p.numbers[5]);
  const Index out_height = static_cast<Index>(p.numbers[6]), out_width = static_cast<Index>(p.numbers[7]);
  const int x = threadIdx.x % kPairs;
  const int y = threadIdx.x / kPairs;
  const Index block = static_cast<Index>(blockIdx.x);
  const Index groups = pairs / kPairs, rest = block / groups;
  const Index group = block - rest * groups, part = rest / strips;
  const Index begin = (rest - part * strips) * kStrip, left = begin - kPaddingWidth;
  const Index pair = group * kPairs + x;
  const Element* const filters = static_cast<const Element*>(p.arrays[1]) + group * (2 * kPairs * kWeights);
  const Channels* const images = static_cast<const Channels*>(p.arrays[0]) + pair;
  Channels* const results = static_cast<Channels*>(p.arrays[2]) + pair;
  unsigned inside = 0;
  #pragma unroll
  for (int j = 0; j < kReach; ++j) inside |= (left + j >= 0 && left + j < width ? 1u : 0u) << j;
  wait_for_previous();

  float* const flat = reinterpret_cast<float*>(weights);
  for (int i = threadIdx.x; i < 2 * kPairs * kWeights; i += kThreads) {
    flat[i % kWeights * kPitch + i / kWeights] = value_of(read(filters + i));
  }
  __syncthreads();
  for (Index step = 0; step < steps; ++step) {
    const Index line = (part * steps + step) * kLines + y;
    if (line >= lines) break;
    const Index image = line / out_height;
    const Index top = line - image * out_height - kPaddingHeight;
    float sums[kStrip][2];
    #pragma unroll
    for (int s = 0; s < kStrip; ++s) sums[s][0] = sums[s][1] = 0.0f;
    #pragma unroll
    for (int ky = 0; ky < kKernelHeight; ++ky) {
      const Index row = top + ky;
      if (row < 0 || row >= height) continue;
      const Channels* const first = images + ((image * height + row) * width + left) * pairs;
      Channels given[kReach];
      #pragma unroll
      for (int j = 0; j < kReach; ++j) {
        given[j] = Channels();
        if (inside >> j & 1u) given[j] = read(first + j * pairs);
      }
      #pragma unroll
      for (int kx = 0; kx < kKernelWidth; ++kx) {
        const Weights weight = weights[(ky * kKernelWidth + kx) * (kPitch / 2) + x];
        #pragma unroll
        for (int s = 0; s < kStrip; ++s) {
          sums[s][0] = fmaf(weight.at[0], value_of(given[s + kx].at[0]), sums[s][0]);
          sums[s][1] = fmaf(weight.at[1], value_of(given[s + kx].at[1]), sums[s][1]);
        }
      }
    }
    Channels* const out = results + (line * out_width + begin) * pairs;
    #pragma unroll
    for (int s = 0; s < kStrip; ++s) {
      if (begin + s >= out_width) continue;
      Channels stored;
      stored.at[0] = Stored<Element>::of(sums[s][0]);
      stored.at[1] = Stored<Element>::of(sums[s][1]);
      out[s * pairs] = stored;
    }
  }
}
)";

}  // namespace thunder::executors::cuda
