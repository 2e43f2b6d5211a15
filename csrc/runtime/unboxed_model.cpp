#include "runtime/unboxed_signature.h"

namespace thunder::runtime {

using namespace signature;  // NOLINT(google-build-using-namespace)

void add_model_signatures(Table& table) {
  // matrices, convolution, attention
  add_signatures<R(T, T, OptT), R(T, T, T, S, S), R(T, T, OptT, Syms, Syms, Syms, Sym),
                 R(T, T, OptT, Syms, Syms, Syms, B, Syms, Sym),
                 R3(T, T, T, OptSyms, Syms, Syms, Syms, B, Syms, Sym, Mask3), R(T, T, T, OptT, F, B, OptF, B),
                 R2(T, T, T, F, B, OptT, OptF), R3(T, T, T, T, T, T, F, B, OptT, OptF)>(table);
  // normalization
  add_signatures<R(T, Syms, OptT, OptT, F, B), R3(T, Syms, OptT, OptT, F), R3(T, T, Syms, T, T, OptT, OptT, Mask3),
                 R(T, Syms, OptT, OptF), R(T, OptT, OptT, OptT, OptT, B, F, F, B),
                 R3(T, OptT, OptT, OptT, OptT, B, F, F), R3(T, T, OptT, OptT, OptT, OptT, OptT, B, F, Mask3),
                 R(T, I, OptT, OptT, F, B), R2(T, Ints, OptT, OptF)>(table);
  // embedding, loss, softmax
  add_signatures<R(T, T, Sym, B, B), R(T, T, Sym, Sym, B), R(T, T, OptT, I, Sym, F), R(T, T, OptT, I, Sym),
                 R2(T, T, OptT, I, Sym), R(T, T, T, OptT, I, Sym, T), R(T, I, OptDt), R(T, I, B), R(T, T, I, Dt),
                 R(T, T, I), R(T, T, T, I)>(table);
}

}  // namespace thunder::runtime
