#pragma once

#include <Python.h>

#include <optional>
#include <string_view>

#include "dispatch/numbers/size_object.h"

namespace thunder::dispatch {

// A size of a tensor of the trace as the program gets it, where it is a symbol or an expression of some
// (tracer/size_node.h). Its class is derived from `torch.SymInt`, which PyTorch's code in C++ takes wherever it takes a
// size; for Python it is an int. Arithmetic with other sizes and ints gives sizes, a comparison becomes a condition of
// the trace, and all that looks at the number itself, in Python or C, comes through the slots of the class and pins it.

/// Returns what the program sees for a value that code in C gave (stolen, new reference): sizes of the trace, by
/// themselves and in a `torch.Size`, become numbers of this class.
[[nodiscard]] PyObject* present_sizes(PyObject* value);

/// `torch.Size(sequence)` of a list or tuple with such numbers among its items (new reference). Null with an exception,
/// or without one: there are none.
[[nodiscard]] PyObject* make_shape(PyObject* sequence);

/// `left symbol right` as Python computes it of sizes and ints, by the names of `prims.number`. nullopt: it is no size.
[[nodiscard]] std::optional<ir::Dim> size_by_operation(std::string_view symbol, const ir::Dim& left,
                                                       const ir::Dim& right);
/// The int as a size; nullopt: it is too large for one.
[[nodiscard]] std::optional<ir::Dim> plain_size(PyObject* number);
/// Whether an expression is one that programs compute sizes with. `n = (n * n + n) % 97`, over and over, doubles it
/// each time.
[[nodiscard]] bool is_short(const ir::Dim& size);
/// As above, and within what 64 bits hold at all sizes that the program is for.
[[nodiscard]] bool is_manageable(const ir::Dim& size, const tracer::SizeScope& scope);

/// Makes the class, if that was not done yet: 0, or -1 with an exception. torch is imported.
int init_size_number();

}  // namespace thunder::dispatch
