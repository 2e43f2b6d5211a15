#include "executors/cpu/depthwise.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "base/rounding.h"
#include "executors/cpu/threads.h"
#include "executors/tiles/kernels.h"
#include "executors/tiles/scratch.h"

namespace thunder::executors::cpu {
namespace {

Storage storage_of_images(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return Storage::kDouble;
    case at::kBFloat16:
      return Storage::kBfloat16;
    case at::kHalf:
      return Storage::kHalf;
    default:
      return Storage::kFloat;
  }
}

/// Images are cut into units, some rows of the gradient and the rows of the input that they meet; channels into chunks
/// as long as two cache lines. A task is one chunk of one group of units. It packs a block of channels of a unit, so
/// that all taps read lines next to one another, and goes over it a few rows at a time: those stay in the first-level
/// cache for all rows of the filter.
class DepthwiseBackward {
 public:
  DepthwiseBackward(const at::Tensor& input, const at::Tensor& gradient, const DepthwiseConvolution& convolution,
                    bool with_bias)
      : of_(convolution),
        storage_(storage_of_images(input.scalar_type())),
        compute_type_(compute_type_of(storage_)),
        images_(input.size(0)),
        channels_(input.size(1)),
        input_sizes_{input.size(2), input.size(3)},
        sizes_{gradient.size(2), gradient.size(3)},
        input_(static_cast<const char*>(input.const_data_ptr())),
        gradient_(static_cast<const char*>(gradient.const_data_ptr())),
        width_(kernels().block_width(compute_type_)),
        taps_(of_.filter[0] * of_.filter[1]),
        block_sums_((taps_ + (with_bias ? 1 : 0)) * width_) {
    constexpr std::int64_t kUnit = 4096;  // columns, in the second-level cache once packed
    constexpr std::int64_t kChunk = 128;  // bytes
    constexpr std::int64_t kTasks = 64;
    const std::int64_t longest = std::max(input_sizes_[1] * of_.stride[0], sizes_[1]);
    unit_rows_ = std::clamp<std::int64_t>(kUnit / longest, 1, sizes_[0]);
    units_ = images_ * divide_up(sizes_[0], unit_rows_);
    chunk_blocks_ = std::max<std::int64_t>(kChunk / (width_ * size_of(storage_)), 1);
    chunks_ = divide_up(channels_, width_ * chunk_blocks_);
    groups_ = std::min(units_, divide_up(kTasks, chunks_));
    const std::int64_t most_rows = (unit_rows_ - 1) * of_.stride[0] + reach() + 1;
    packed_input_bytes_ = std::min(most_rows, input_sizes_[0]) * row_bytes(input_sizes_[1]);
  }

  DepthwiseGradients run() {
    sums_.assign(groups_ * chunks_ * chunk_sums(), 0.0);
    const bool parallel = images_ * channels_ * sizes_[0] * sizes_[1] * taps_ > (1 << 18);
    const auto add = [](void* self, std::int64_t i) { static_cast<DepthwiseBackward*>(self)->run_task(i); };
    run_tasks(groups_ * chunks_, parallel, add, this);
    const at::TensorOptions options(compute_type_ == ComputeType::kDouble ? at::kDouble : at::kFloat);
    DepthwiseGradients gradients{at::empty({channels_, 1, of_.filter[0], of_.filter[1]}, options), {}};
    if (with_bias()) gradients.bias = at::empty({channels_}, options);
    if (compute_type_ == ComputeType::kDouble) {
      join_groups<double>(gradients);
    } else {
      join_groups<float>(gradients);
    }
    return gradients;
  }

 private:
  /// Rows of a block, from those rows of the image on.
  struct Packed {
    const char* input;
    std::int64_t input_begin;
    const char* gradient;
    std::int64_t begin;
  };

  [[nodiscard]] std::int64_t reach() const { return (of_.filter[0] - 1) * of_.dilation[0]; }
  [[nodiscard]] std::int64_t row_bytes(std::int64_t columns) const { return columns * width_ * size_of(compute_type_); }
  [[nodiscard]] std::int64_t chunk_sums() const { return chunk_blocks_ * block_sums_; }
  [[nodiscard]] bool with_bias() const { return block_sums_ > taps_ * width_; }

  void run_task(std::int64_t task) {
    const std::int64_t group = task / chunks_;
    const std::int64_t first_channel = task % chunks_ * chunk_blocks_ * width_;
    const Scratch scratch(packed_input_bytes_ + (unit_rows_ + 1) * row_bytes(sizes_[1]));
    char* ones = scratch.data() + packed_input_bytes_ + unit_rows_ * row_bytes(sizes_[1]);
    if (compute_type_ == ComputeType::kDouble) {
      std::fill_n(reinterpret_cast<double*>(ones), sizes_[1] * width_, 1.0);
    } else {
      std::fill_n(reinterpret_cast<float*>(ones), sizes_[1] * width_, 1.0F);
    }
    for (std::int64_t unit = units_ * group / groups_; unit < units_ * (group + 1) / groups_; ++unit) {
      double* sums = sums_.data() + task * chunk_sums();
      for (std::int64_t block = 0; block < chunk_blocks_; ++block, sums += block_sums_) {
        const std::int64_t channel = first_channel + block * width_;
        if (channel < channels_) add_unit(unit, channel, scratch.data(), ones, sums);
      }
    }
  }

  void add_unit(std::int64_t unit, std::int64_t channel, char* scratch, const char* ones, double* sums) const {
    const std::int64_t units_of_image = units_ / images_;
    const std::int64_t image = unit / units_of_image;
    const std::int64_t begin = unit % units_of_image * unit_rows_;
    const std::int64_t end = std::min(begin + unit_rows_, sizes_[0]);
    const std::int64_t input_begin = std::max<std::int64_t>(begin * of_.stride[0] - of_.padding[0], 0);
    const std::int64_t input_end = std::min((end - 1) * of_.stride[0] - of_.padding[0] + reach() + 1, input_sizes_[0]);
    const Packed packed{scratch, input_begin, scratch + packed_input_bytes_, begin};
    pack(scratch + packed_input_bytes_, gradient_, image * sizes_[0] + begin, end - begin, sizes_[1], channel);
    if (with_bias()) add_bias(packed.gradient, end - begin, ones, sums + taps_ * width_);
    if (input_begin >= input_end) return;
    pack(scratch, input_, image * input_sizes_[0] + input_begin, input_end - input_begin, input_sizes_[1], channel);
    constexpr std::int64_t kNear = 48 << 10;
    const std::int64_t room = kNear - reach() * row_bytes(input_sizes_[1]);
    const std::int64_t of_each = row_bytes(sizes_[1] + of_.stride[0] * input_sizes_[1]);
    const std::int64_t rows_at_once = std::max<std::int64_t>(room / of_each, 1);
    for (std::int64_t row = begin; row < end; row += rows_at_once) {
      add_rows(packed, row, std::min(row + rows_at_once, end), sums);
    }
  }

  /// A filter of one tap that meets ones; in double from row to row.
  void add_bias(const char* gradient, std::int64_t rows, const char* ones, double* sums) const {
    for (std::int64_t row = 0; row < rows; ++row) {
      kernels().taps(compute_type_, 1)(sums, TapRows{.gradient = gradient + row * row_bytes(sizes_[1]),
                                                     .input = ones,
                                                     .gradient_row = 0,
                                                     .input_row = 0,
                                                     .rows = 1,
                                                     .columns = sizes_[1],
                                                     .input_columns = sizes_[1],
                                                     .first = 0,
                                                     .stride = 1,
                                                     .dilation = 1});
    }
  }

  void pack(char* to, const char* from, std::int64_t first_row, std::int64_t rows, std::int64_t columns,
            std::int64_t channel) const {
    kernels().pack(storage_)(to, from + (first_row * columns * channels_ + channel) * size_of(storage_), channels_,
                             std::min(width_, channels_ - channel), rows * columns);
  }

  void add_rows(const Packed& packed, std::int64_t begin, std::int64_t end, double* sums) const {
    for (std::int64_t i = 0; i < of_.filter[0]; ++i) {
      const std::int64_t meets = i * of_.dilation[0] - of_.padding[0];  // row 0 of the gradient
      const std::int64_t room = input_sizes_[0] - 1 - meets;
      if (room < 0) continue;
      const std::int64_t first = meets >= 0 ? begin : std::max(begin, divide_up(-meets, of_.stride[0]));
      const std::int64_t last = std::min(end, room / of_.stride[0] + 1);
      if (first >= last) continue;
      const std::int64_t input_row = first * of_.stride[0] + meets - packed.input_begin;
      TapRows rows{.gradient = packed.gradient + (first - packed.begin) * row_bytes(sizes_[1]),
                   .input = packed.input + input_row * row_bytes(input_sizes_[1]),
                   .gradient_row = sizes_[1] * width_,
                   .input_row = of_.stride[0] * input_sizes_[1] * width_,
                   .rows = last - first,
                   .columns = sizes_[1],
                   .input_columns = input_sizes_[1],
                   .first = -of_.padding[1],
                   .stride = of_.stride[1],
                   .dilation = of_.dilation[1]};
      double* row_sums = sums + i * of_.filter[1] * width_;
      for (std::int64_t tap = 0; tap < of_.filter[1];) {
        const std::int64_t left = of_.filter[1] - tap;
        const std::int64_t count = divide_up(left, divide_up(left, kMostTaps));
        kernels().taps(compute_type_, static_cast<int>(count))(row_sums + tap * width_, rows);
        rows.first += count * of_.dilation[1];
        tap += count;
      }
    }
  }

  template <typename T>
  void join_groups(const DepthwiseGradients& gradients) const {
    T* filter = gradients.filter.mutable_data_ptr<T>();
    T* bias = with_bias() ? gradients.bias.mutable_data_ptr<T>() : nullptr;
    for (std::int64_t channel = 0; channel < channels_; ++channel) {
      const double* first = sums_.data() + channel / width_ * block_sums_ + channel % width_;
      const auto sum_of = [&](std::int64_t tap) {
        double sum = 0;
        for (std::int64_t g = 0; g < groups_; ++g) sum += first[g * chunks_ * chunk_sums() + tap * width_];
        return static_cast<T>(sum);
      };
      for (std::int64_t tap = 0; tap < taps_; ++tap) *filter++ = sum_of(tap);
      if (bias != nullptr) *bias++ = sum_of(taps_);
    }
  }

  const DepthwiseConvolution of_;
  const Storage storage_;
  const ComputeType compute_type_;
  const std::int64_t images_;
  const std::int64_t channels_;
  const std::array<std::int64_t, 2> input_sizes_;
  const std::array<std::int64_t, 2> sizes_;  ///< sizes of the gradient
  const char* const input_;
  const char* const gradient_;
  const std::int64_t width_;  ///< channels of a block
  const std::int64_t taps_;
  const std::int64_t block_sums_;  ///< sums of its taps, and of its bias behind them
  std::int64_t unit_rows_;
  std::int64_t units_;
  std::int64_t chunk_blocks_;
  std::int64_t chunks_;
  std::int64_t groups_;
  std::int64_t packed_input_bytes_;
  std::vector<double> sums_;  ///< [group][chunk][block][tap][channel]
};

}  // namespace

DepthwiseGradients depthwise_gradients(const at::Tensor& input, const at::Tensor& gradient,
                                       const DepthwiseConvolution& convolution, bool with_bias) {
  const at::Tensor images = input.contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor of_output = gradient.contiguous(at::MemoryFormat::ChannelsLast);
  return DepthwiseBackward(images, of_output, convolution, with_bias).run();
}

}  // namespace thunder::executors::cpu
