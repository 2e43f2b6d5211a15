// Included by kernels_impl.h, inside of its namespace: loops of operations on elements.

/// A function of PyTorch's vectors, applied to an array.
template <typename T, typename Function>
inline void map_vectors(T* out, const T* a, std::int64_t count, const Function& function) {
  using Vector = at::vec::Vectorized<T>;
  std::int64_t i = 0;
  for (; i + Vector::size() <= count; i += Vector::size()) function(Vector::loadu(a + i), i).store(out + i);
  if (i < count) function(Vector::loadu(a + i, count - i), i).store(out + i, static_cast<int>(count - i));
}

template <typename F, typename T>
void unary_loop(void* out, const void* a, const void*, const void*, std::int64_t count) {
  auto* result = static_cast<decltype(F::template apply<T>(T{}))*>(out);
  const auto* x = static_cast<const T*>(a);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) result[i] = F::template apply<T>(x[i]);
}

#ifdef __AVX512F__
template <typename F>
void function_loop(void* out, const void* a, const void*, const void*, std::int64_t count) {
  auto* result = static_cast<float*>(out);
  const auto* x = static_cast<const float*>(a);
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) _mm512_storeu_ps(result + i, F::template apply<Floats>(_mm512_loadu_ps(x + i)));
  if (i == count) return;
  const auto rest = static_cast<__mmask16>((1U << (count - i)) - 1);
  _mm512_mask_storeu_ps(result + i, rest, F::template apply<Floats>(_mm512_maskz_loadu_ps(rest, x + i)));
}
#endif

template <typename T>
void fill_loop(void* out, const void* a, const void*, const void*, std::int64_t count) {
  std::fill_n(static_cast<T*>(out), count, *static_cast<const T*>(a));
}

template <typename F, typename T, bool scalar_a, bool scalar_b>
void binary_loop(void* out, const void* a, const void* b, const void*, std::int64_t count) {
  auto* result = static_cast<decltype(F::template apply<T>(T{}, T{}))*>(out);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  const T x0 = *x;
  const T y0 = *y;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    result[i] = F::template apply<T>(scalar_a ? x0 : x[i], scalar_b ? y0 : y[i]);
  }
}

/// `scalars`: a bit for each argument that is one element for all.
template <typename F, unsigned scalars>
void ternary_loop(void* out, const void* a, const void* b, const void* c, std::int64_t count) {
  auto* result = static_cast<float*>(out);
  const auto* x = static_cast<const float*>(a);
  const auto* y = static_cast<const float*>(b);
  const auto* z = static_cast<const float*>(c);
  const float x0 = *x;
  const float y0 = *y;
  const float z0 = *z;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    result[i] =
        F::apply((scalars & 1U) != 0 ? x0 : x[i], (scalars & 2U) != 0 ? y0 : y[i], (scalars & 4U) != 0 ? z0 : z[i]);
  }
}

template <typename T, bool scalar_b, bool scalar_c>
void where_loop(void* out, const void* a, const void* b, const void* c, std::int64_t count) {
  auto* result = static_cast<T*>(out);
  const auto* condition = static_cast<const Bool*>(a);
  const auto* x = static_cast<const T*>(b);
  const auto* y = static_cast<const T*>(c);
  const T x0 = *x;
  const T y0 = *y;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const T yes = scalar_b ? x0 : x[i];
    const T no = scalar_c ? y0 : y[i];
    result[i] = condition[i] != 0 ? yes : no;
  }
}

template <typename To, typename From>
void convert_loop(void* out, const void* a, const void*, const void*, std::int64_t count) {
  auto* result = static_cast<To*>(out);
  const auto* x = static_cast<const From*>(a);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<To, Bool>) {
      result[i] = static_cast<Bool>(x[i] != From{0});
    } else {
      result[i] = static_cast<To>(x[i]);
    }
  }
}

#define THUNDER_VECTOR_FUNCTION(function)                                                        \
  template <typename T>                                                                          \
  void function##_loop(void* out, const void* a, const void*, const void*, std::int64_t count) { \
    map_vectors(static_cast<T*>(out), static_cast<const T*>(a), count,                           \
                [](auto x, std::int64_t) { return x.function(); });                              \
  }
THUNDER_VECTOR_FUNCTION(exp)
THUNDER_VECTOR_FUNCTION(expm1)
THUNDER_VECTOR_FUNCTION(log)
THUNDER_VECTOR_FUNCTION(log1p)
THUNDER_VECTOR_FUNCTION(sin)
THUNDER_VECTOR_FUNCTION(cos)
THUNDER_VECTOR_FUNCTION(tanh)
THUNDER_VECTOR_FUNCTION(erf)
THUNDER_VECTOR_FUNCTION(floor)
THUNDER_VECTOR_FUNCTION(ceil)
THUNDER_VECTOR_FUNCTION(trunc)
THUNDER_VECTOR_FUNCTION(round)

template <typename T, bool scalar_b>
void power_loop(void* out, const void* a, const void* b, const void*, std::int64_t count) {
  using Vector = at::vec::Vectorized<T>;
  const auto* y = static_cast<const T*>(b);
  const Vector y0(*y);
  map_vectors(static_cast<T*>(out), static_cast<const T*>(a), count, [&](Vector x, std::int64_t i) {
    return x.pow(scalar_b ? y0 : Vector::loadu(y + i, std::min<std::int64_t>(Vector::size(), count - i)));
  });
}

/// Calls `function` with a value of the compute type's C++ type.
template <typename Function>
ElementKernel for_compute_type(ComputeType compute_type, const Function& function) {
  switch (compute_type) {
    case ComputeType::kFloat:
      return function(float{});
    case ComputeType::kDouble:
      return function(double{});
    case ComputeType::kInt:
      return function(Integer{});
    case ComputeType::kBool:
      return function(Bool{});
  }
  return nullptr;
}

template <TileOp op>
ElementKernel find_unary(ComputeType compute_type) {
  return for_compute_type(compute_type, []<typename T>(T) -> ElementKernel {
#ifdef __AVX512F__
    if constexpr (std::is_same_v<T, float> && kIsFunction<op>) return &function_loop<Unary<op>>;
#endif
    if constexpr (Unary<op>::template kDefined<T>) return &unary_loop<Unary<op>, T>;
    return nullptr;
  });
}

template <TileOp op>
ElementKernel find_binary(ComputeType compute_type, unsigned scalars) {
  return for_compute_type(compute_type, [&]<typename T>(T) -> ElementKernel {
    if constexpr (Binary<op>::template kDefined<T>) {
      if (scalars == 0) return &binary_loop<Binary<op>, T, false, false>;
      if (scalars == 1) return &binary_loop<Binary<op>, T, true, false>;
      if (scalars == 2) return &binary_loop<Binary<op>, T, false, true>;
    }
    return nullptr;
  });
}

template <TileOp op>
ElementKernel find_ternary(ComputeType compute_type, unsigned scalars) {
  if (compute_type != ComputeType::kFloat) return nullptr;
  constexpr ElementKernel kLoops[] = {&ternary_loop<Ternary<op>, 0>, &ternary_loop<Ternary<op>, 1>,
                                      &ternary_loop<Ternary<op>, 2>, &ternary_loop<Ternary<op>, 3>,
                                      &ternary_loop<Ternary<op>, 4>, &ternary_loop<Ternary<op>, 5>,
                                      &ternary_loop<Ternary<op>, 6>, nullptr};
  return kLoops[scalars];
}

template <typename To>
ElementKernel find_conversion(ComputeType from) {
  return for_compute_type(from, []<typename From>(From) -> ElementKernel { return &convert_loop<To, From>; });
}

#define THUNDER_FIND_VECTOR_FUNCTION(function)                       \
  (compute_type == ComputeType::kFloat    ? &function##_loop<float>  \
   : compute_type == ComputeType::kDouble ? &function##_loop<double> \
                                          : nullptr)

/// Operations that PyTorch's vectors compute; null: another one.
ElementKernel find_vector_function(TileOp op, ComputeType compute_type) {
  const bool is_double = compute_type == ComputeType::kDouble;
  switch (op) {
    case TileOp::kExpm1:
      return THUNDER_FIND_VECTOR_FUNCTION(expm1);
    case TileOp::kLog:
      return THUNDER_FIND_VECTOR_FUNCTION(log);
    case TileOp::kLog1p:
      return THUNDER_FIND_VECTOR_FUNCTION(log1p);
    case TileOp::kSin:
      return THUNDER_FIND_VECTOR_FUNCTION(sin);
    case TileOp::kCos:
      return THUNDER_FIND_VECTOR_FUNCTION(cos);
    case TileOp::kExp:
      return is_double ? &exp_loop<double> : nullptr;
    case TileOp::kTanh:
      return is_double ? &tanh_loop<double> : nullptr;
    case TileOp::kErf:
      return is_double ? &erf_loop<double> : nullptr;
    case TileOp::kFloor:
      return is_double ? &floor_loop<double> : nullptr;
    case TileOp::kCeil:
      return is_double ? &ceil_loop<double> : nullptr;
    case TileOp::kTrunc:
      return is_double ? &trunc_loop<double> : nullptr;
    case TileOp::kRound:
      return is_double ? &round_loop<double> : nullptr;
    default:
      return nullptr;
  }
}

template <TileOp op>
ElementKernel find_element(ComputeType compute_type, unsigned scalars) {
  if constexpr (requires { sizeof(Unary<op>); }) {
    if (scalars == 0) return find_unary<op>(compute_type);
    if (op == TileOp::kCopy)
      return for_compute_type(compute_type, []<typename T>(T) -> ElementKernel { return &fill_loop<T>; });
  } else if constexpr (requires { sizeof(Binary<op>); }) {
    return find_binary<op>(compute_type, scalars);
  } else if constexpr (requires { sizeof(Ternary<op>); }) {
    return find_ternary<op>(compute_type, scalars);
  }
  return nullptr;
}

ElementKernel find_where(ComputeType compute_type, unsigned scalars) {
  return for_compute_type(compute_type, [&]<typename T>(T) -> ElementKernel {
    if (scalars == 0) return &where_loop<T, false, false>;
    if (scalars == 2) return &where_loop<T, true, false>;
    if (scalars == 4) return &where_loop<T, false, true>;
    return scalars == 6 ? &where_loop<T, true, true> : nullptr;
  });
}

ElementKernel find_power(ComputeType compute_type, unsigned scalars) {
  return for_compute_type(compute_type, [&]<typename T>(T) -> ElementKernel {
    if constexpr (kIsReal<T>) {
      if (scalars == 0) return &power_loop<T, false>;
      if (scalars == 2) return &power_loop<T, true>;
    }
    return nullptr;
  });
}

ElementKernel element(TileOp op, ComputeType compute_type, unsigned scalars) {
  if (op == TileOp::kPower) return find_power(compute_type, scalars);
  if (scalars == 0) {
    if (const ElementKernel kernel = find_vector_function(op, compute_type)) return kernel;
  }
  switch (op) {
#define THUNDER_CASE(name) \
  case TileOp::name:       \
    return find_element<TileOp::name>(compute_type, scalars);
    THUNDER_FORALL_UNARY_TILE_OPS(THUNDER_CASE)
    THUNDER_FORALL_BINARY_TILE_OPS(THUNDER_CASE)
    THUNDER_FORALL_TERNARY_TILE_OPS(THUNDER_CASE)
#undef THUNDER_CASE
    case TileOp::kWhere:
      return find_where(compute_type, scalars);
    case TileOp::kConvertToFloat:
      return scalars == 0 ? find_conversion<float>(compute_type) : nullptr;
    case TileOp::kConvertToDouble:
      return scalars == 0 ? find_conversion<double>(compute_type) : nullptr;
    case TileOp::kConvertToInt:
      return scalars == 0 ? find_conversion<Integer>(compute_type) : nullptr;
    case TileOp::kConvertToBool:
      return scalars == 0 ? find_conversion<Bool>(compute_type) : nullptr;
  }
  return nullptr;
}
