#pragma once

#include <string>

#include "bindings/python_values.h"
#include "transforms/rules.h"

namespace thunder::bindings {

/// The rule of a grad_transform. `driver(arguments, keywords, cotangent_like)` calls it and gives (results, result
/// number of each cotangent asked for, [(argument, gradient)]). Rows live as long as the process: compilations point to
/// them.
[[nodiscard]] const transforms::GradRule* make_rule(const std::string& executor, const ir::Operator& op,
                                                    const python::object& driver);

}  // namespace thunder::bindings
