#include "executors/cuda_kernels/pooling_text.h"

namespace thunder::executors::cuda {

// Each thread takes a vector of channels of one maximum. All elements of its window are loaded before the first of them
// is compared. As in PyTorch's kernel for such images, the first of equal elements wins, the last NaN, and the place of
// a maximum of -infinity is 0.
const std::string_view kMaxPoolingText = R"(
typedef Vector<Element, kVector> Elements;
typedef Vector<Integer, kVector> Places;

extern "C" __global__ void __launch_bounds__(kThreads) FUNCTION(const Parameters p) {
  let_next_begin();
  const Index vectors = static_cast<Index>(p.numbers[1]);
  const Index height = static_cast<Index>(p.numbers[2]), width = static_cast<Index>(p.numbers[3]);
  const Index out_height = static_cast<Index>(p.numbers[4]), out_width = static_cast<Index>(p.numbers[5]);
  const Index at = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= static_cast<Index>(p.numbers[0])) return;
  const Index pixel = at / vectors, vector = at - pixel * vectors;
  const Index line = pixel / out_width, image = line / out_height;
  const Index top = (line - image * out_height) * kStrideHeight - kPaddingHeight;
  const Index left = (pixel - line * out_width) * kStrideWidth - kPaddingWidth;
  const Elements* const images = static_cast<const Elements*>(p.arrays[0]) + image * height * width * vectors + vector;
  wait_for_previous();

  Elements window[kKernelHeight][kKernelWidth];
  #pragma unroll
  for (int y = 0; y < kKernelHeight; ++y) {
    #pragma unroll
    for (int x = 0; x < kKernelWidth; ++x) {
      const Index row = top + y, column = left + x;
      const bool is_inside = row >= 0 && row < height && column >= 0 && column < width;
      if (is_inside) window[y][x] = read(images + (row * width + column) * vectors);
    }
  }
  float best[kVector];
  Index places[kVector];
  #pragma unroll
  for (int e = 0; e < kVector; ++e) {
    best[e] = value_of(Bfloat16{0xff80});  // -infinity
    places[e] = 0;
  }
  #pragma unroll
  for (int y = 0; y < kKernelHeight; ++y) {
    #pragma unroll
    for (int x = 0; x < kKernelWidth; ++x) {
      const Index row = top + y, column = left + x;
      if (row < 0 || row >= height || column < 0 || column >= width) continue;
      #pragma unroll
      for (int e = 0; e < kVector; ++e) {
        const float given = value_of(window[y][x].at[e]);
        const bool wins = given > best[e] || given != given;
        best[e] = wins ? given : best[e];
        places[e] = wins ? row * width + column : places[e];
      }
    }
  }
  Elements stored;
  #pragma unroll
  for (int e = 0; e < kVector; ++e) stored.at[e] = Stored<Element>::of(best[e]);
  static_cast<Elements*>(p.arrays[1])[at] = stored;
  if (kGivesPlaces) {
    Places stored_places;
    #pragma unroll
    for (int e = 0; e < kVector; ++e) stored_places.at[e] = places[e];
    static_cast<Places*>(p.arrays[kGivesPlaces ? 2 : 1])[at] = stored_places;
  }
}
)";

// Each thread takes a vector of channels of a patch of elements, as large as the stride, which the same few windows can
// have chosen: their gradients and places are read once for the patch, and added in one order.
const std::string_view kMaxPoolingGradientText = R"(
typedef Vector<Element, kVector> Elements;
typedef Vector<Integer, kVector> Places;

// Windows that begin strides before a patch and reach into it, besides the one that begins with it.
constexpr int kAbove = (kKernelHeight - 1) / kStrideHeight;
constexpr int kBefore = (kKernelWidth - 1) / kStrideWidth;

extern "C" __global__ void __launch_bounds__(kThreads) FUNCTION(const Parameters p) {
  let_next_begin();
  const Index vectors = static_cast<Index>(p.numbers[1]);
  const Index height = static_cast<Index>(p.numbers[2]), width = static_cast<Index>(p.numbers[3]);
  const Index out_height = static_cast<Index>(p.numbers[4]), out_width = static_cast<Index>(p.numbers[5]);
  const Index patch_rows = static_cast<Index>(p.numbers[6]), patch_columns = static_cast<Index>(p.numbers[7]);
  const Index at = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= static_cast<Index>(p.numbers[0])) return;
  const Index patch = at / vectors, vector = at - patch * vectors;
  const Index line = patch / patch_columns, image = line / patch_rows;
  const Index patch_row = line - image * patch_rows, patch_column = patch - line * patch_columns;
  const Elements* const gradients = static_cast<const Elements*>(p.arrays[0]);
  const Places* const chosen = static_cast<const Places*>(p.arrays[2]);
  wait_for_previous();

  Elements gradient[kAbove + 1][kBefore + 1];
  int places[kAbove + 1][kBefore + 1][kVector];
  #pragma unroll
  for (int y = 0; y <= kAbove; ++y) {
    #pragma unroll
    for (int x = 0; x <= kBefore; ++x) {
      const Index row = patch_row - kAbove + y, column = patch_column - kBefore + x;
      const bool is_window = row >= 0 && row < out_height && column >= 0 && column < out_width;
      const Index window = ((image * out_height + row) * out_width + column) * vectors + vector;
      #pragma unroll
      for (int e = 0; e < kVector; ++e) places[y][x][e] = -1;
      gradient[y][x] = Elements();
      if (is_window) {
        gradient[y][x] = read(gradients + window);
        const Places loaded = read(chosen + window);
        #pragma unroll
        for (int e = 0; e < kVector; ++e) places[y][x][e] = static_cast<int>(loaded.at[e]);
      }
    }
  }
  Elements* const result = static_cast<Elements*>(p.arrays[3]) + image * height * width * vectors + vector;
  #pragma unroll
  for (int r = 0; r < kStrideHeight; ++r) {
    #pragma unroll
    for (int c = 0; c < kStrideWidth; ++c) {
      const Index row = patch_row * kStrideHeight - kPaddingHeight + r;
      const Index column = patch_column * kStrideWidth - kPaddingWidth + c;
      if (row < 0 || row >= height || column < 0 || column >= width) continue;
      const int place = static_cast<int>(row * width + column);
      float sums[kVector];
      #pragma unroll
      for (int e = 0; e < kVector; ++e) sums[e] = 0.0f;
      #pragma unroll
      for (int y = 0; y <= kAbove; ++y) {
        #pragma unroll
        for (int x = 0; x <= kBefore; ++x) {
          if ((kAbove - y) * kStrideHeight + r >= kKernelHeight) continue;
          if ((kBefore - x) * kStrideWidth + c >= kKernelWidth) continue;
          #pragma unroll
          for (int e = 0; e < kVector; ++e) {
            if (places[y][x][e] == place) sums[e] += value_of(gradient[y][x].at[e]);
          }
        }
      }
      Elements stored;
      #pragma unroll
      for (int e = 0; e < kVector; ++e) stored.at[e] = Stored<Element>::of(sums[e]);
      result[(row * width + column) * vectors] = stored;
    }
  }
}
)";

}  // namespace thunder::executors::cuda
