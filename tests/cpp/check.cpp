#include "check.h"

#include <cstdio>
#include <filesystem>
#include <vector>

namespace thunder::check {
namespace {

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

int failures = 0;

/// Runs one test; true when nothing failed.
bool run(const Test& test) {
  const int before = failures;
  try {
    test.function();
  } catch (const std::exception& error) {
    report_failure(test.file, 0, std::string("exception: ") + error.what());
  }
  const bool passed = failures == before;
  std::printf("%s %s\n", passed ? "ok    " : "FAILED", test.name);
  return passed;
}

}  // namespace

bool add(Test test) {
  tests().push_back(test);
  return true;
}

void report_failure(const char* file, int line, std::string_view message) {
  ++failures;
  std::printf("%s:%d: %.*s\n", file, line, static_cast<int>(message.size()), message.data());
}

int run_tests(std::string_view stem, std::string_view name) {
  int passed = 0;
  int failed = 0;
  for (const Test& test : tests()) {
    if (!stem.empty() && std::filesystem::path(test.file).stem() != stem) continue;
    if (!name.empty() && name != test.name) continue;
    ++(run(test) ? passed : failed);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  std::fflush(stdout);
  return failed != 0 || passed == 0 ? 1 : 0;
}

}  // namespace thunder::check
