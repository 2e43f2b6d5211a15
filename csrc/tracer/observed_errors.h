#pragma once

namespace thunder::tracer {

/// While alive, programs that are traced on this thread look whether operations of linear algebra fail, which raise
/// after they have computed: so that a program which catches the error is compiled, with and without it.
class ObservedErrors {
 public:
  explicit ObservedErrors(bool are_observed);
  ~ObservedErrors();
  ObservedErrors(const ObservedErrors&) = delete;
  ObservedErrors& operator=(const ObservedErrors&) = delete;
  [[nodiscard]] static bool are_observed();

 private:
  bool before_;
};

}  // namespace thunder::tracer
