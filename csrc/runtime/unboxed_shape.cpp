#include "runtime/unboxed_signature.h"

namespace thunder::runtime {

using namespace signature;  // NOLINT(google-build-using-namespace)

void add_shape_signatures(Table& table) {
  // reductions, scans, pooling
  add_signatures<R(T, OptDt), R(T, OptInts, B, OptDt), R(T, Ints, B), R(T, OptInts, B), R(T, OptInts, OptS, B),
                 R2(T, I, B), R(T, OptI, B), R2(T, Sym, I, B, B), R2(T, I, B, B), R2(T, OptB, I, B),
                 R(T, OptS, Ints, B), R(T, I, T, Syms, B), R(T, Ints, Ints, Ints, Ints, B),
                 R2(T, Ints, Ints, Ints, Ints, B), R(T, T, Ints, Ints, Ints, Ints, B, T)>(table);
  // views and shapes
  add_signatures<R(T, I), R(T, I, I), R(T, Ints), R(T, Syms), R(T, Syms, B), R(T, I, Sym), R(T, I, OptSym, OptSym, Sym),
                 R(T, Syms, Syms), R(T, Syms, Syms, OptSym), R(T, I, Sym, Sym), R(T, Syms, I, Sym, Sym, Sym),
                 R(T, Syms, I, Sym), R(T, Syms, I), R(T, Sym), R(T, Sym, OptI), R(T, I, I, I), R(T, Syms, Ints),
                 R(T, Ints, Ints), R(T, Syms, S), R(T, Syms, Text, OptF), R(T, Syms, OptS), RList(T, I),
                 RList(T, Sym, I), RList(T, Syms, I), RList(T, I, I)>(table);
  // indexing and joining
  add_signatures<R(at::TensorList), R(const at::ITensorListRef&, I), R(at::TensorList, I), R(T, Indices),
                 R(T, Indices, T, B), R(T, I, T), R(T, I, T, B), R(T, I, T, T), R(T, I, T, S), R(T, I, T, T, S),
                 R(T, T, I, T, B), R(T, Syms, I, T)>(table);
}

}  // namespace thunder::runtime
