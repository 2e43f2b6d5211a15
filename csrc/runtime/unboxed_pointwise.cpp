#include "runtime/unboxed_signature.h"

namespace thunder::runtime {

using namespace signature;  // NOLINT(google-build-using-namespace)

void add_pointwise_signatures(Table& table) {
  // elementwise
  add_signatures<R(T), R(T, T), R(T, T, T), R(T, S), R(T, T, S), R(T, S, S), R(S, T), R(T, T, T, S), R(T, S, T),
                 R(T, Text), R(T, T, Text), R(T, OptS, OptS), R(T, OptT, OptT), R(T, F), R(T, OptF), R(T, F, B),
                 R2(T, F, OptB), R(T, T, F), R(T, T, std::optional<Text>)>(table);
  // in place
  add_signatures<W(W, T), W(W, S), W(W, T, S), W(W, S, S), W(W, T, B), W(W, T, T, S), W(W), W(W, T, T),
                 W(W, Indices, T, B, B)>(table);
  // copies and creation
  add_signatures<R(T, OptMf), R(T, Mf), R(T, Dt, B, B, OptMf), R(T, T, B, B, OptMf), R(T, Dev, Dt, B, B, OptMf),
                 R(T, OptDt, OptL, OptD, OptB, B, OptMf), R(T, OptDt, OptL, OptD, OptB, OptMf),
                 R(T, S, OptDt, OptL, OptD, OptB, OptMf), R(T, Syms, OptDt, OptL, OptD, OptB),
                 R(T, Syms, S, OptDt, OptL, OptD, OptB), R(Syms, OptDt, OptL, OptD, OptB),
                 R(Syms, S, OptDt, OptL, OptD, OptB), R(S, OptDt, OptL, OptD, OptB), R(S, S, OptDt, OptL, OptD, OptB),
                 R(S, S, S, OptDt, OptL, OptD, OptB), R(Syms, OptDt, OptL, OptD, OptB, OptMf)>(table);
}

}  // namespace thunder::runtime
