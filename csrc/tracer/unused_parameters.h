#pragma once

namespace torch {
class Library;
}

namespace thunder::tracer {

/// Defines `torch.ops.thunder.*` for parameters that some processes use and others do not: part of
/// `register_parallel_operators`.
void define_unused_parameters(torch::Library& library);

}  // namespace thunder::tracer
