#include <torch/csrc/Exceptions.h>

#include <string>
#include <thread>

#include "check.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"

namespace thunder::dispatch {
namespace {

void run_python(const char* code) { CHECK_EQ(PyRun_SimpleString(code), 0); }

/// Warns on another thread, which has not seen Python; returns what comes out of it.
std::string raised_elsewhere() {
  std::string raised;
  const GilRelease released(true);
  std::thread([&] {
    try {
      warn_in_python("a kernel fails");
    } catch (python_error& error) {
      const GilHold gil;
      error.restore();
      const py::Ref exception = take_error();
      raised = Py_TYPE(exception.get())->tp_name;
    }
  }).join();
  return raised;
}

}  // namespace

TEST(warnings_of_other_threads_are_warnings_of_python) {
  run_python("import warnings; shown = []; warnings.showwarning = lambda *given: shown.append(given)");
  CHECK_EQ(raised_elsewhere(), "");
  run_python("assert [(str(w[0]), w[1]) for w in shown] == [('a kernel fails', RuntimeWarning)], shown");
}

TEST(warnings_that_are_errors_are_thrown) {
  run_python("import warnings; warnings.simplefilter('error')");
  CHECK_EQ(raised_elsewhere(), "RuntimeWarning");
  run_python("warnings.resetwarnings()");
}

}  // namespace thunder::dispatch
