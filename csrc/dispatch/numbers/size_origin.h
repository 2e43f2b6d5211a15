#pragma once

#include <Python.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "dispatch/numbers/number_origin.h"
#include "dispatch/numbers/number_trace.h"
#include "interpreter/python/python_ref.h"
#include "ir/size.h"
#include "tracer/size_node.h"

namespace thunder::dispatch {

// Numbers that the program computes from sizes and are no sizes: floats. They are traced numbers (traced_number.h),
// which each run computes anew, with what is known of where they come from: whoever looks at one pins its sizes, and
// what rounds it to an int, or compares it, gives a size or a condition where it is a quotient of sizes.

/// While alive, numbers that come from sizes are recorded in this trace.
class NumbersOfSizes {
 public:
  explicit NumbersOfSizes(std::shared_ptr<NumberTrace> trace);
  ~NumbersOfSizes();
  NumbersOfSizes(const NumbersOfSizes&) = delete;
  NumbersOfSizes& operator=(const NumbersOfSizes&) = delete;

  /// A symbol that stands for an int from outside: a float of it is none of sizes, since such an int may be an input
  /// that holds any number.
  static void add_int(std::uint32_t symbol);

 private:
  std::shared_ptr<NumberTrace> before_;
  std::set<std::uint32_t> ints_before_;
  std::map<ir::ValueId, py::Ref> tensors_before_;
};

/// Whether this is a size, or a traced number that comes from nothing else.
[[nodiscard]] bool is_from_sizes(PyObject* object);
/// `left operation right` for two such numbers, or one and a plain one (new reference). Null without an exception: the
/// number is not recorded.
[[nodiscard]] PyObject* combine_sizes(std::string_view operation, PyObject* left, PyObject* right);
/// The outcome of a comparison, which becomes a condition; nullopt: it is none of sizes. -1 with an exception.
[[nodiscard]] std::optional<int> compare_fractions(PyObject* left, PyObject* right, int operation);
/// `math.floor`, `math.ceil`, `int` (`trunc`) or `round` of such a number, as a size (new reference). Null without an
/// exception: nobody knows.
[[nodiscard]] PyObject* round_to_size(std::string_view function, PyObject* number);
/// A function of the module `math` of a size. Null without an exception: it is not recorded.
[[nodiscard]] PyObject* compute_math_of_size(std::string_view name, PyObject* size);
/// An operation (`bridge::compute_number`) on numbers that come from sizes alone, or are plain; `real` is what Python
/// gave. Null without an exception: it is not recorded.
[[nodiscard]] PyObject* record_of_sizes(std::string_view operation, PyObject* left, PyObject* right,
                                        const py::Ref& real);
/// The traced number for a size.
[[nodiscard]] PyObject* traced_number_of_size(PyObject* size);
/// A tensor of the program holds nothing but this size: `torch.tensor(n)`.
void note_size_in(PyObject* tensor, PyObject* size);
/// Whether such a size is what a tensor holds now.
[[nodiscard]] bool holds_size(PyObject* tensor);
/// The size that a tensor holds (new reference).
[[nodiscard]] PyObject* size_in(PyObject* tensor);
/// Whether a number is an int that stays the same over a range of sizes: `math.ceil(math.log2(n))`, and what is
/// computed of it. To look at one costs a program for each range, not for each size.
[[nodiscard]] bool is_level_of_sizes(PyObject* object);
/// `n.bit_length()` (new reference). Null with an exception.
[[nodiscard]] PyObject* bit_length_of_size(PyObject* size);
/// Pins the sizes that a number comes from, or keeps them where the number stays as it is.
void look_at_origin(const SizeOrigin& origin);

}  // namespace thunder::dispatch
