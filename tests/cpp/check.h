#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <string_view>

/// A small test harness: TEST(name) { CHECK(condition); CHECK_EQ(got, expected); CHECK_THROWS(expression, Type); }
/// A failed check is reported and the test goes on; an exception ends the test. Each file `<layer>_<noun>.cpp` is one
/// ctest entry; `test_<layer> <file stem> [name]` runs its tests, or one of them. The tests of a layer that needs
/// Python are a library, run inside of an interpreter: `python run_in_python.py libtest_<layer>.so <file stem> [name]`.
namespace thunder::check {

struct Test {
  const char* file;
  const char* name;
  void (*function)();
};

/// Called by TEST before main; returns a dummy.
bool add(Test test);
void report_failure(const char* file, int line, std::string_view message);
/// Runs the tests of a file (empty: of all), or the one called `name`; the exit status.
int run_tests(std::string_view stem, std::string_view name);

template <typename T>
std::string show(const T& value) {
  if constexpr (requires { value.begin()->size(); } && !requires(std::ostream& out) { out << value; }) {
    std::string text;
    for (const auto& element : value) text += show(element) + " ";
    return text;
  } else if constexpr (requires(std::ostream& out) { out << value; }) {
    std::ostringstream out;
    out << std::boolalpha << value;
    return out.str();
  } else {
    return "(value without operator<<)";
  }
}

template <typename Got, typename Expected>
void equal(const Got& got, const Expected& expected, const char* expression, const char* file, int line) {
  if (got == expected) return;
  report_failure(file, line,
                 std::string(expression) + "\n  got:      " + show(got) + "\n  expected: " + show(expected));
}

}  // namespace thunder::check

#define TEST(name)                                                                                          \
  static void test_##name();                                                                                \
  [[maybe_unused]] static const bool added_##name = ::thunder::check::add({__FILE__, #name, &test_##name}); \
  static void test_##name()

// torch defines macros of these names.
#undef CHECK
#undef CHECK_EQ

#define CHECK(condition)                                                                             \
  do {                                                                                               \
    if (!(condition)) ::thunder::check::report_failure(__FILE__, __LINE__, "CHECK(" #condition ")"); \
  } while (false)

#define CHECK_EQ(got, expected) ::thunder::check::equal((got), (expected), #got " == " #expected, __FILE__, __LINE__)

#define CHECK_THROWS(expression, Type)                                                                   \
  do {                                                                                                   \
    bool thrown_ = false;                                                                                \
    try {                                                                                                \
      static_cast<void>(expression);                                                                     \
    } catch (const Type&) {                                                                              \
      thrown_ = true;                                                                                    \
    } catch (...) {                                                                                      \
    }                                                                                                    \
    if (!thrown_) ::thunder::check::report_failure(__FILE__, __LINE__, #expression " throws no " #Type); \
  } while (false)
