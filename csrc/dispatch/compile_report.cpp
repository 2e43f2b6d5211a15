#include "dispatch/compile_report.h"

#include "interpreter/python/python_ref.h"

namespace thunder::dispatch {
namespace {

template <typename Rows, typename ToTuple>
PyObject* to_list(const Rows& rows, const ToTuple& to_tuple) {
  py::Ref list = py::Ref::steal(PyList_New(0));
  for (const auto& row : rows) {
    const py::Ref item = py::Ref::steal(to_tuple(row));
    if (!list || !item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return list.release();
}

}  // namespace

PyObject* report_passes(const compile::Compiled& computation) {
  return to_list(computation.pass_statistics(), [](const passes::PassStatistics& row) {
    return Py_BuildValue("(ssdnn)", row.pass.c_str(), row.trace.c_str(), row.seconds,
                         static_cast<Py_ssize_t>(row.symbols_before), static_cast<Py_ssize_t>(row.symbols_after));
  });
}

PyObject* report_rules(const compile::Compiled& computation) {
  return to_list(computation.rules(), [](const transforms::ServedOperation& row) {
    const char* file = row.location.file == nullptr ? "" : row.location.file->c_str();
    return Py_BuildValue("(ssssi)", row.operation.c_str(), row.rule.c_str(), row.reason.c_str(), file,
                         static_cast<int>(row.location.line));
  });
}

}  // namespace thunder::dispatch
