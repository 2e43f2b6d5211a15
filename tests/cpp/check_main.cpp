#include "check.h"

int main(int count, char** arguments) {
  return thunder::check::run_tests(count > 1 ? arguments[1] : "", count > 2 ? arguments[2] : "");
}
