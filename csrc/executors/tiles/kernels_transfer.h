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

TransferKernel load(Storage from, bool strided) {
  const auto pick = [&](TransferKernel dense, TransferKernel with_stride) { return strided ? with_stride : dense; };
  switch (from) {
    case Storage::kBool:
      return pick(&load_loop<Bool, Bool>, &load_strided_loop<Bool, Bool>);
    case Storage::kUint8:
      return pick(&load_loop<std::uint8_t, Integer>, &load_strided_loop<std::uint8_t, Integer>);
    case Storage::kInt8:
      return pick(&load_loop<std::int8_t, Integer>, &load_strided_loop<std::int8_t, Integer>);
    case Storage::kInt16:
      return pick(&load_loop<std::int16_t, Integer>, &load_strided_loop<std::int16_t, Integer>);
    case Storage::kInt32:
      return pick(&load_loop<std::int32_t, Integer>, &load_strided_loop<std::int32_t, Integer>);
    case Storage::kInt64:
      return pick(&load_loop<Integer, Integer>, &load_strided_loop<Integer, Integer>);
    case Storage::kHalf:
      return pick(&load_loop<Half, float>, &load_strided_loop<Half, float>);
    case Storage::kBfloat16:
      return pick(&load_loop<Bfloat16, float>, &load_strided_loop<Bfloat16, float>);
    case Storage::kFloat:
      return pick(&load_loop<float, float>, &load_strided_loop<float, float>);
    case Storage::kDouble:
      return pick(&load_loop<double, double>, &load_strided_loop<double, double>);
  }
  return nullptr;
}

/// Stores of whole vectors that leave the caches alone; the rest as usual.
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

/// The same of floats in a narrower format.
template <typename Narrow>
void stream_narrow(void* to, const void* from, std::int64_t, std::int64_t count) {
  auto* result = static_cast<Narrow*>(to);
  const auto* x = static_cast<const float*>(from);
  std::int64_t i = 0;
#ifdef __AVX2__
  for (; i < count && (reinterpret_cast<std::uintptr_t>(result + i) & 31U) != 0; ++i) {
    result[i] = converted<Narrow, float>(x[i]);
  }
  alignas(32) Narrow block[16];
  for (; i + 16 <= count; i += 16) {
    load_loop<float, Narrow>(block, x + i, 1, 16);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(result + i), _mm256_load_si256(reinterpret_cast<__m256i*>(block)));
  }
#endif
  load_loop<float, Narrow>(result + i, x + i, 1, count - i);
}

TransferKernel store(Storage to, bool streams) {
  switch (to) {
    case Storage::kBool:
      return &load_loop<Bool, Bool>;
    case Storage::kUint8:
      return &load_loop<Integer, std::uint8_t>;
    case Storage::kInt8:
      return &load_loop<Integer, std::int8_t>;
    case Storage::kInt16:
      return &load_loop<Integer, std::int16_t>;
    case Storage::kInt32:
      return &load_loop<Integer, std::int32_t>;
    case Storage::kInt64:
      return &load_loop<Integer, Integer>;
    case Storage::kHalf:
      return streams ? &stream_narrow<Half> : &load_loop<float, Half>;
    case Storage::kBfloat16:
      return streams ? &stream_narrow<Bfloat16> : &load_loop<float, Bfloat16>;
    case Storage::kFloat:
      return streams ? &stream_loop<float> : &load_loop<float, float>;
    case Storage::kDouble:
      return streams ? &stream_loop<double> : &load_loop<double, double>;
  }
  return nullptr;
}
