// Kernels of depthwise convolutions, included as kernels_impl.h is, and by it.

namespace {

template <typename T>
constexpr std::int64_t kBlockWidth = at::vec::Vectorized<T>::size();

std::int64_t block_width(ComputeType compute_type) {
  return compute_type == ComputeType::kDouble ? kBlockWidth<double> : kBlockWidth<float>;
}

template <typename From, typename To>
void pack_loop(void* to, const void* from, std::int64_t stride, std::int64_t channels, std::int64_t count) {
  constexpr std::int64_t kWidth = kBlockWidth<To>;
  auto* __restrict result = static_cast<To*>(to);
  const auto* __restrict x = static_cast<const From*>(from);
  for (std::int64_t i = 0; i < count; ++i, result += kWidth, x += stride) {
    if (channels == kWidth) {
      for (std::int64_t c = 0; c < kWidth; ++c) result[c] = converted<To>(x[c]);
    } else {
      for (std::int64_t c = 0; c < kWidth; ++c) result[c] = c < channels ? converted<To>(x[c]) : To{0};
    }
  }
}

PackKernel pack(Storage from) {
  switch (from) {
    case Storage::kHalf:
      return &pack_loop<Half, float>;
    case Storage::kBfloat16:
      return &pack_loop<Bfloat16, float>;
    case Storage::kFloat:
      return &pack_loop<float, float>;
    case Storage::kDouble:
      return &pack_loop<double, double>;
    default:
      return nullptr;
  }
}

/// Each tap has a sum in a register, and few taps several, so that no addition waits for the one before.
template <typename T, int taps>
class Taps {
 public:
  explicit Taps(const TapRows& rows) : rows_(rows) {
    for (int tap = 0; tap < taps; ++tap) {
      const std::int64_t meets = rows.first + tap * rows.dilation;
      const std::int64_t room = rows.input_columns - 1 - meets;
      begins_[tap] = meets >= 0 ? 0 : std::min((-meets + rows.stride - 1) / rows.stride, rows.columns);
      ends_[tap] = room < 0 ? 0 : std::min(room / rows.stride + 1, rows.columns);
    }
  }

  void add_to(double* sums) {
    const T* gradient = static_cast<const T*>(rows_.gradient);
    const T* input = static_cast<const T*>(rows_.input);
    const std::int64_t rows_at_once = std::max<std::int64_t>(kMostAdded / std::max<std::int64_t>(rows_.columns, 1), 1);
    for (std::int64_t row = 0; row < rows_.rows; row += rows_at_once) {
      for (auto& chain : chains_) std::fill(std::begin(chain), std::end(chain), Vector(T{0}));
      const std::int64_t end = std::min(row + rows_at_once, rows_.rows);
      for (std::int64_t i = row; i < end; ++i, gradient += rows_.gradient_row, input += rows_.input_row) {
        const std::int64_t rest = add_inside(gradient, input);
        add_border(gradient, input, rest);
      }
      flush(sums);
    }
  }

 private:
  using Vector = at::vec::Vectorized<T>;
  static constexpr std::int64_t kWidth = kBlockWidth<T>;
  static constexpr int kChains = taps >= 6 ? 1 : taps >= 3 ? 2 : 4;
  static constexpr std::int64_t kMostAdded = 128;  // products in a lane; beyond that in double

  /// Columns whose taps all meet the image; gives the first one after them.
  std::int64_t add_inside(const T* gradient, const T* input) {
    const std::int64_t between = rows_.dilation * kWidth;
    const std::int64_t step = rows_.stride * kWidth;
    Vector sums[kChains][taps];
    for (int chain = 0; chain < kChains; ++chain) std::copy_n(chains_[chain], taps, sums[chain]);
    std::int64_t column = begins_[0];
    const T* g = gradient + column * kWidth;
    const T* x = input + (rows_.first + column * rows_.stride) * kWidth;
    for (; column + kChains <= ends_[taps - 1]; column += kChains, g += kChains * kWidth, x += kChains * step) {
#pragma GCC unroll 4
      for (int chain = 0; chain < kChains; ++chain) {
        const Vector factor = Vector::loadu(g + chain * kWidth);
#pragma GCC unroll 8
        for (int tap = 0; tap < taps; ++tap) {
          sums[chain][tap] = at::vec::fmadd(factor, Vector::loadu(x + chain * step + tap * between), sums[chain][tap]);
        }
      }
    }
    for (int chain = 0; chain < kChains; ++chain) std::copy_n(sums[chain], taps, chains_[chain]);
    return column;
  }

  void add_border(const T* gradient, const T* input, std::int64_t rest) {
#pragma GCC unroll 8
    for (int tap = 0; tap < taps; ++tap) {
      Vector sum = chains_[0][tap];
      const T* x = input + (rows_.first + tap * rows_.dilation) * kWidth;
      const auto add = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t column = begin; column < end; ++column) {
          sum = at::vec::fmadd(Vector::loadu(gradient + column * kWidth),
                               Vector::loadu(x + column * rows_.stride * kWidth), sum);
        }
      };
      add(begins_[tap], std::min(begins_[0], ends_[tap]));
      add(std::max(rest, begins_[tap]), ends_[tap]);
      chains_[0][tap] = sum;
    }
  }

  void flush(double* sums) const {
    for (int tap = 0; tap < taps; ++tap, sums += kWidth) {
      Vector total = chains_[0][tap];
      for (int chain = 1; chain < kChains; ++chain) total = total + chains_[chain][tap];
      T values[kWidth];
      total.store(values);
      for (std::int64_t c = 0; c < kWidth; ++c) sums[c] += static_cast<double>(values[c]);
    }
  }

  const TapRows rows_;
  std::int64_t begins_[taps];  ///< the columns where the tap meets the image
  std::int64_t ends_[taps];
  Vector chains_[kChains][taps];
};

template <typename T, int taps>
void run_taps(double* sums, const TapRows& rows) {
  Taps<T, taps>(rows).add_to(sums);
}

TapKernel taps(ComputeType compute_type, int count) {
  static constexpr TapKernel kFloat[] = {&run_taps<float, 1>, &run_taps<float, 2>, &run_taps<float, 3>,
                                         &run_taps<float, 4>, &run_taps<float, 5>, &run_taps<float, 6>,
                                         &run_taps<float, 7>, &run_taps<float, 8>};
  static constexpr TapKernel kDouble[] = {&run_taps<double, 1>, &run_taps<double, 2>, &run_taps<double, 3>,
                                          &run_taps<double, 4>, &run_taps<double, 5>, &run_taps<double, 6>,
                                          &run_taps<double, 7>, &run_taps<double, 8>};
  static_assert(std::size(kFloat) == kMostTaps && std::size(kDouble) == kMostTaps);
  return compute_type == ComputeType::kDouble ? kDouble[count - 1] : kFloat[count - 1];
}

}  // namespace
