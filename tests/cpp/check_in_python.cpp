#include "check.h"

/// Called by run_in_python.py, with the GIL.
extern "C" [[gnu::visibility("default")]] int thunder_run_tests(const char* stem, const char* name) {
  return thunder::check::run_tests(stem, name);
}
