#pragma once

#include <vector>

#include "dispatch/capture/data_reads.h"
#include "dispatch/capture/sharp_edges.h"
#include "dispatch/python/python_generator.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/python/python_ref.h"

namespace thunder::dispatch {

/// For an object of a class whose numbers programs draw; null for others, as for classes in Python that may draw
/// otherwise.
[[nodiscard]] const GeneratorMethods* generator_methods_of(PyObject* object);

/// Random numbers that a program draws from generators of Python and NumPy: each run draws them, as eager does, and the
/// program gets them as numbers of the trace.
class HostRandom {
 public:
  HostRandom(DataReads& reads, SharpEdgeWatch& edges, interpreter::Tracker& tracker)
      : reads_(reads), edges_(edges), tracker_(tracker) {}
  void add_substitutes(interpreter::TrackerOptions& options);
  /// Refuses programs that draw and reach the bits behind a generator of NumPy too (`generator.bit_generator.state`):
  /// what is read and set there does not keep its place among the draws.
  void require_hidden_sources() const;

 private:
  struct Method;
  /// By the convention of a substitute.
  int draw(const Method& method, PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result);

  DataReads& reads_;
  SharpEdgeWatch& edges_;
  interpreter::Tracker& tracker_;
  std::vector<py::Ref> sources_;  ///< bit generators that the program draws from
};

}  // namespace thunder::dispatch
