// Included by kernels_impl.h, inside of its namespace: between memory and registers.

struct Half {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};

template <typename To, typename From>
inline To converted(From x) {
  if constexpr (std::is_same_v<From, Half>) {
    return c10::detail::fp16_ieee_to_fp32_value(x.bits);
  } else if constexpr (std::is_same_v<From, Bfloat16>) {
    return of_bfloat16(x.bits);
  } else if constexpr (std::is_same_v<To, Half>) {
    return Half{c10::detail::fp16_ieee_from_fp32_value(x)};
  } else if constexpr (std::is_same_v<To, Bfloat16>) {
    return Bfloat16{to_bfloat16(x)};
  } else {
    return static_cast<To>(x);
  }
}

template <typename From, typename To>
void load_loop(void* to, const void* from, std::int64_t, std::int64_t count) {
  auto* result = static_cast<To*>(to);
  const auto* x = static_cast<const From*>(from);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) result[i] = converted<To, From>(x[i]);
}
template <typename From, typename To>
void load_strided_loop(void* to, const void* from, std::int64_t stride, std::int64_t count) {
  auto* result = static_cast<To*>(to);
  const auto* x = static_cast<const From*>(from);
  if (stride == 0) {
    std::fill_n(result, count, converted<To, From>(x[0]));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) result[i] = converted<To, From>(x[i * stride]);
}

// GCC makes no vectors of the processor's own conversions.
template <>
void load_loop<Half, float>(void* to, const void* from, std::int64_t, std::int64_t count) {
  auto* result = static_cast<float*>(to);
  const auto* x = static_cast<const Half*>(from);
  std::int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(result + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  }
#endif
  for (; i < count; ++i) result[i] = converted<float, Half>(x[i]);
}
template <>
void load_loop<float, Half>(void* to, const void* from, std::int64_t, std::int64_t count) {
  auto* result = static_cast<Half*>(to);
  const auto* x = static_cast<const float*>(from);
  std::int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(result + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < count; ++i) result[i] = converted<Half, float>(x[i]);
}

/// In short rows that are converted the last block begins earlier, so that no element is left to go by itself.
template <typename From, typename To>
void load_blocks(void* to, const void* from, std::int64_t, std::int64_t count) {
  constexpr std::int64_t kBlock = 16;
  constexpr std::int64_t kShort = 256;
  if (std::is_same_v<From, To> || count < kBlock || count > kShort) return load_loop<From, To>(to, from, 1, count);
  auto* result = static_cast<To*>(to);
  const auto* x = static_cast<const From*>(from);
  for (std::int64_t i = 0; i < count; i += kBlock) {
    const std::int64_t first = std::min(i, count - kBlock);
    load_loop<From, To>(result + first, x + first, 1, kBlock);
  }
}

template <typename From, typename To, void (*loop)(void*, const void*, std::int64_t, std::int64_t)>
void by_rows(void* to, const void* from, const Transfer& transfer) {
  const auto [count, stride, rows, to_row, from_row] = transfer;
  if (stride == 1 && to_row == count && from_row == count) {
    loop(to, from, 1, rows * count);
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    loop(static_cast<To*>(to) + row * to_row, static_cast<const From*>(from) + row * from_row, stride, count);
  }
}

template <typename From, typename To>
TransferKernel transfer_between(bool strided) {
  return strided ? &by_rows<From, To, load_strided_loop<From, To>> : &by_rows<From, To, load_blocks<From, To>>;
}

TransferKernel load(Storage from, bool strided) {
  switch (from) {
    case Storage::kBool:
      return transfer_between<Bool, Bool>(strided);
    case Storage::kUint8:
      return transfer_between<std::uint8_t, Integer>(strided);
    case Storage::kInt8:
      return transfer_between<std::int8_t, Integer>(strided);
    case Storage::kInt16:
      return transfer_between<std::int16_t, Integer>(strided);
    case Storage::kInt32:
      return transfer_between<std::int32_t, Integer>(strided);
    case Storage::kInt64:
      return transfer_between<Integer, Integer>(strided);
    case Storage::kHalf:
      return transfer_between<Half, float>(strided);
    case Storage::kBfloat16:
      return transfer_between<Bfloat16, float>(strided);
    case Storage::kFloat:
      return transfer_between<float, float>(strided);
    case Storage::kDouble:
      return transfer_between<double, double>(strided);
  }
  return nullptr;
}

/// Stores of full vectors that leave the caches alone; the rest as usual.
template <typename T>
void stream_loop(void* to, const void* from, std::int64_t, std::int64_t count) {
  auto* result = static_cast<T*>(to);
  const auto* x = static_cast<const T*>(from);
  std::int64_t i = 0;
#ifdef __AVX2__
  constexpr std::int64_t kWidth = 32 / sizeof(T);
  for (; i < count && (reinterpret_cast<std::uintptr_t>(result + i) & 31U) != 0; ++i) result[i] = x[i];
  for (; i + kWidth <= count; i += kWidth) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(result + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i)));
  }
#endif
  for (; i < count; ++i) result[i] = x[i];
}

/// Stores floats in a narrower format, past the caches as `stream_loop` does.
template <typename Narrow>
void stream_narrow(void* to, const void* from, std::int64_t, std::int64_t count) {
  constexpr std::int64_t kBlock = 512;  // enough that what is loaded again was stored some time ago
  alignas(64) Narrow block[kBlock];
  for (std::int64_t i = 0; i < count; i += kBlock) {
    const std::int64_t n = std::min(kBlock, count - i);
    load_loop<float, Narrow>(block, static_cast<const float*>(from) + i, 1, n);
    stream_loop<Narrow>(static_cast<Narrow*>(to) + i, block, 1, n);
  }
}

TransferKernel store(Storage to, bool streams) {
  switch (to) {
    case Storage::kBool:
      return transfer_between<Bool, Bool>(false);
    case Storage::kUint8:
      return transfer_between<Integer, std::uint8_t>(false);
    case Storage::kInt8:
      return transfer_between<Integer, std::int8_t>(false);
    case Storage::kInt16:
      return transfer_between<Integer, std::int16_t>(false);
    case Storage::kInt32:
      return transfer_between<Integer, std::int32_t>(false);
    case Storage::kInt64:
      return transfer_between<Integer, Integer>(false);
    case Storage::kHalf:
      return streams ? &by_rows<float, Half, stream_narrow<Half>> : transfer_between<float, Half>(false);
    case Storage::kBfloat16:
      return streams ? &by_rows<float, Bfloat16, stream_narrow<Bfloat16>> : transfer_between<float, Bfloat16>(false);
    case Storage::kFloat:
      return streams ? &by_rows<float, float, stream_loop<float>> : transfer_between<float, float>(false);
    case Storage::kDouble:
      return streams ? &by_rows<double, double, stream_loop<double>> : transfer_between<double, double>(false);
  }
  return nullptr;
}
