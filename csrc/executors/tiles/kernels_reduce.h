// Included by kernels_impl.h, inside of its namespace: sums, extremes and moments.

/// Sums in as many lanes as hide the latency of an addition, so the rounding of a long sum stays small.
template <typename T, typename Function>
inline T sum_of(std::int64_t count, const Function& term) {
  constexpr int kLanes = 256 / sizeof(T);
  T lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC ivdep
    for (int k = 0; k < kLanes; ++k) lanes[k] += term(i + k);
  }
  for (int k = 0; i + k < count; ++k) lanes[k] += term(i + k);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  }
  return lanes[0];
}

template <typename T>
void sum_loop(void* accumulator, const void* values, std::int64_t count) {
  const auto* x = static_cast<const T*>(values);
  *static_cast<double*>(accumulator) += sum_of<T>(count, [x](std::int64_t i) { return x[i]; });
}

void sum_products(void* accumulator, const void* a, const void* b, std::int64_t count) {
  const auto* x = static_cast<const float*>(a);
  const auto* y = static_cast<const float*>(b);
  *static_cast<double*>(accumulator) += sum_of<float>(count, [x, y](std::int64_t i) { return x[i] * y[i]; });
}

template <typename T, bool is_max>
void extreme_loop(void* accumulator, const void* values, std::int64_t count) {
  constexpr int kLanes = 64;
  const auto* x = static_cast<const T*>(values);
  using Accumulator = std::conditional_t<kIsReal<T>, double, Integer>;
  auto& total = *static_cast<Accumulator*>(accumulator);
  const auto better = [](T a, T b) { return (is_max ? a > b : a < b) || a != a ? a : b; };
  T lanes[kLanes];
  for (T& lane : lanes) lane = static_cast<T>(total);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC ivdep
    for (int k = 0; k < kLanes; ++k) lanes[k] = better(x[i + k], lanes[k]);
  }
  for (int k = 0; i + k < count; ++k) lanes[k] = better(x[i + k], lanes[k]);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] = better(lanes[k + width], lanes[k]);
  }
  total = lanes[0];
}

void sum_integers(void* accumulator, const void* values, std::int64_t count) {
  auto& total = *static_cast<Integer*>(accumulator);
  const auto* x = static_cast<const Integer*>(values);
  for (std::int64_t i = 0; i < count; ++i) total = wrapped_add(total, x[i]);
}
void sum_bools(void* accumulator, const void* values, std::int64_t count) {
  auto& total = *static_cast<Integer*>(accumulator);
  const auto* x = static_cast<const Bool*>(values);
  for (std::int64_t i = 0; i < count; ++i) total += x[i];
}

ReduceKernel reduce(ReduceOp op, ComputeType compute_type) {
  switch (compute_type) {
    case ComputeType::kFloat:
      return op == ReduceOp::kSum   ? &sum_loop<float>
             : op == ReduceOp::kMax ? &extreme_loop<float, true>
                                    : &extreme_loop<float, false>;
    case ComputeType::kDouble:
      return op == ReduceOp::kSum   ? &sum_loop<double>
             : op == ReduceOp::kMax ? &extreme_loop<double, true>
                                    : &extreme_loop<double, false>;
    case ComputeType::kInt:
      return op == ReduceOp::kSum   ? &sum_integers
             : op == ReduceOp::kMax ? &extreme_loop<Integer, true>
                                    : &extreme_loop<Integer, false>;
    case ComputeType::kBool:
      return op == ReduceOp::kSum ? &sum_bools : nullptr;
  }
  return nullptr;
}

/// Two passes over what lies in the cache, then Chan's formula for joining it with what came before.
template <typename T>
void moments_loop(double* moments, const void* values, std::int64_t count) {
  const auto* x = static_cast<const T*>(values);
  const double n = static_cast<double>(count);
  const T first = x[0];  // near the mean where all is: nothing is rounded of what is all equal
  const double mean = static_cast<double>(first) +
                      static_cast<double>(sum_of<T>(count, [=](std::int64_t i) { return x[i] - first; })) / n;
  const T shift = static_cast<T>(mean);
  const double rest = mean - static_cast<double>(shift);
  const double squares =
      static_cast<double>(sum_of<T>(count, [=](std::int64_t i) { return (x[i] - shift) * (x[i] - shift); }));
  const double total = moments[2] + n;
  const double delta = mean - moments[0];
  moments[0] += delta * n / total;
  moments[1] += squares - n * rest * rest + delta * delta * moments[2] * n / total;
  moments[2] = total;
}

MomentsKernel moments(ComputeType compute_type) {
  return compute_type == ComputeType::kFloat    ? &moments_loop<float>
         : compute_type == ComputeType::kDouble ? &moments_loop<double>
                                                : nullptr;
}

template <typename T>
void add_loop(void* sums, const void* values, std::int64_t count) {
  auto* total = static_cast<T*>(sums);
  const auto* x = static_cast<const T*>(values);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) total[i] = wrapped_add(total[i], x[i]);
}

void add_to(ComputeType compute_type, void* sums, const void* values, std::int64_t count) {
  if (compute_type == ComputeType::kFloat) add_loop<float>(sums, values, count);
  if (compute_type == ComputeType::kDouble) add_loop<double>(sums, values, count);
  if (compute_type == ComputeType::kInt) add_loop<Integer>(sums, values, count);
}

void add_products_to(void* sums, const void* a, const void* b, std::int64_t count) {
  auto* total = static_cast<float*>(sums);
  const auto* x = static_cast<const float*>(a);
  const auto* y = static_cast<const float*>(b);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) total[i] += x[i] * y[i];
}

template <typename T>
void add_moments_loop(double* first, const T* x, const ColumnTile& tile, bool begins) {
  const std::int64_t columns = tile.columns;
  double* sums = first + tile.step;
  double* squares = sums + tile.step;
  if (begins) std::copy_n(x, columns, first);
  std::int64_t row = 0;
  for (; row + 4 <= tile.rows; row += 4, x += 4 * columns) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < columns; ++i) {
      const double a = static_cast<double>(x[i]) - first[i];
      const double b = static_cast<double>(x[columns + i]) - first[i];
      const double c = static_cast<double>(x[2 * columns + i]) - first[i];
      const double d = static_cast<double>(x[3 * columns + i]) - first[i];
      sums[i] += (a + b) + (c + d);
      squares[i] += (a * a + b * b) + (c * c + d * d);
    }
  }
  for (; row < tile.rows; ++row, x += columns) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < columns; ++i) {
      const double distance = static_cast<double>(x[i]) - first[i];
      sums[i] += distance;
      squares[i] += distance * distance;
    }
  }
}

void add_moments(ComputeType compute_type, double* moments, const void* values, const ColumnTile& tile, bool begins) {
  if (compute_type == ComputeType::kFloat) add_moments_loop(moments, static_cast<const float*>(values), tile, begins);
  if (compute_type == ComputeType::kDouble) add_moments_loop(moments, static_cast<const double*>(values), tile, begins);
}

// --- rows side by side

/// Rows that are worked on together: their accumulators stay in the first-level cache.
constexpr std::int64_t kAbreast = 256;

template <typename T>
void sum_columns(double* sums, const void* values, const ColumnTile& tile) {
  const auto [rows, columns, step] = tile;
  const auto* x = static_cast<const T*>(values);
  std::int64_t column = 0;
  for (; column + 4 <= columns; column += 4, x += 4 * step) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < rows; ++i) {
      sums[i] += static_cast<double>((x[i] + x[step + i]) + (x[2 * step + i] + x[3 * step + i]));
    }
  }
  for (; column < columns; ++column, x += step) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < rows; ++i) sums[i] += static_cast<double>(x[i]);
  }
}

template <typename T, bool is_max>
void extreme_of_columns(double* extremes, const void* values, const ColumnTile& tile) {
  const auto [rows, columns, step] = tile;
  const auto* x = static_cast<const T*>(values);
  const auto better = [](T a, T b) { return (is_max ? a > b : a < b) || a != a ? a : b; };
  for (std::int64_t first = 0; first < rows; first += kAbreast) {
    const std::int64_t count = std::min(kAbreast, rows - first);
    T best[kAbreast];
    for (std::int64_t i = 0; i < count; ++i) best[i] = static_cast<T>(extremes[first + i]);
    for (std::int64_t column = 0; column < columns; ++column) {
      const T* own = x + column * step + first;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) best[i] = better(own[i], best[i]);
    }
    for (std::int64_t i = 0; i < count; ++i) extremes[first + i] = static_cast<double>(best[i]);
  }
}

ColumnsKernel reduce_columns(ReduceOp op, ComputeType compute_type) {
  const auto of = [op]<typename T>(T) {
    return op == ReduceOp::kSum   ? &sum_columns<T>
           : op == ReduceOp::kMax ? &extreme_of_columns<T, true>
                                  : &extreme_of_columns<T, false>;
  };
  return compute_type == ComputeType::kFloat    ? of(float{})
         : compute_type == ComputeType::kDouble ? of(double{})
                                                : nullptr;
}

/// Distances from the first column in double, then Chan's formula.
template <typename T>
void join_moments_loop(double* moments, const void* values, const ColumnTile& tile) {
  const auto [rows, columns, step] = tile;
  const auto* x = static_cast<const T*>(values);
  const auto n = static_cast<double>(columns);
  for (std::int64_t first = 0; first < rows; first += kAbreast) {
    const std::int64_t count = std::min(kAbreast, rows - first);
    double sums[kAbreast] = {};
    double squares[kAbreast] = {};
    for (std::int64_t column = 1; column < columns; ++column) {
      const T* own = x + column * step + first;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < count; ++i) {
        const double distance = static_cast<double>(own[i]) - static_cast<double>(x[first + i]);
        sums[i] += distance;
        squares[i] += distance * distance;
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      double* own = moments + 3 * (first + i);
      const double total = own[2] + n;
      const double delta = static_cast<double>(x[first + i]) + sums[i] / n - own[0];
      own[0] += delta * n / total;
      own[1] += squares[i] - sums[i] * sums[i] / n + delta * delta * own[2] * n / total;
      own[2] = total;
    }
  }
}

ColumnsKernel join_moments(ComputeType compute_type) {
  return compute_type == ComputeType::kFloat    ? &join_moments_loop<float>
         : compute_type == ComputeType::kDouble ? &join_moments_loop<double>
                                                : nullptr;
}
