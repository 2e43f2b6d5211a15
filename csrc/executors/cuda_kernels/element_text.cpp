#include "executors/cuda_kernels/element_text.h"

namespace thunder::executors::cuda {
namespace {

using fusion::ComputeType;
using operators::ElementOp;

std::string call(std::string_view function, std::string_view first) {
  return std::string(function) + "(" + std::string(first) + ")";
}
std::string call(std::string_view function, std::string_view first, std::string_view second) {
  return std::string(function) + "(" + std::string(first) + ", " + std::string(second) + ")";
}
std::string infix(std::string_view left, std::string_view symbol, std::string_view right) {
  return "(" + std::string(left) + " " + std::string(symbol) + " " + std::string(right) + ")";
}

/// Whether the operation is computed in integers where its operands are; others go by way of double.
bool is_exact(ElementOp op) {
  switch (op) {
    case ElementOp::kNegate:
    case ElementOp::kAbs:
    case ElementOp::kSign:
    case ElementOp::kSquare:
    case ElementOp::kRelu:
    case ElementOp::kNot:
    case ElementOp::kAnd:
    case ElementOp::kOr:
    case ElementOp::kAdd:
    case ElementOp::kSubtract:
    case ElementOp::kMultiply:
    case ElementOp::kMaximum:
    case ElementOp::kMinimum:
    case ElementOp::kWhere:
      return true;
    default:
      return operators::is_comparison(op);
  }
}

std::string text_of(ElementOp op, const std::array<std::string, 3>& o) {
  switch (op) {
    case ElementOp::kNegate:
      return call("negate", o[0]);
    case ElementOp::kAbs:
      return call("absolute", o[0]);
    case ElementOp::kSign:
      return call("sign", o[0]);
    case ElementOp::kSquare:
      return call("multiply", o[0], o[0]);
    case ElementOp::kReciprocal:
      return infix("1", "/", o[0]);
    case ElementOp::kSqrt:
      return call("sqrt", o[0]);
    case ElementOp::kRsqrt:
      return call("rsqrt", o[0]);
    case ElementOp::kExp:
      return call("exp", o[0]);
    case ElementOp::kExpm1:
      return call("expm1", o[0]);
    case ElementOp::kLog:
      return call("log", o[0]);
    case ElementOp::kLog1p:
      return call("log1p", o[0]);
    case ElementOp::kSin:
      return call("sin", o[0]);
    case ElementOp::kCos:
      return call("cos", o[0]);
    case ElementOp::kTanh:
      return call("tanh", o[0]);
    case ElementOp::kErf:
      return call("erf", o[0]);
    case ElementOp::kSigmoid:
      return call("sigmoid", o[0]);
    case ElementOp::kNormalCdf:
      return call("normal_cdf", o[0]);
    case ElementOp::kTailOfGelu:
      return call("tanh_tail", o[0]);
    case ElementOp::kRelu:
      return call("relu", o[0]);
    case ElementOp::kFloor:
      return call("floor", o[0]);
    case ElementOp::kCeil:
      return call("ceil", o[0]);
    case ElementOp::kTrunc:
      return call("trunc", o[0]);
    case ElementOp::kRound:
      return call("rint", o[0]);
    case ElementOp::kNot:
      return infix(o[0], "==", "0");
    case ElementOp::kAdd:
      return call("add", o[0], o[1]);
    case ElementOp::kSubtract:
      return call("subtract", o[0], o[1]);
    case ElementOp::kMultiply:
      return call("multiply", o[0], o[1]);
    case ElementOp::kDivide:
      return infix(o[0], "/", o[1]);
    case ElementOp::kMaximum:
      return call("maximum", o[0], o[1]);
    case ElementOp::kMinimum:
      return call("minimum", o[0], o[1]);
    case ElementOp::kPower:
      return call("pow", o[0], o[1]);
    case ElementOp::kAnd:
      return infix(o[0] + " != 0", "&&", o[1] + " != 0");
    case ElementOp::kOr:
      return infix(o[0] + " != 0", "||", o[1] + " != 0");
    case ElementOp::kGeluSlope:
      return call("gelu_slope", o[0], o[1]);
    case ElementOp::kGeluOfTail:
      return call("gelu_of_tail", o[0], o[1]);
    case ElementOp::kGeluTanhSlope:
      return call("gelu_tanh_slope", o[0], o[1]);
    case ElementOp::kSiluSlope:
      return call("silu_slope", o[0], o[1]);
    case ElementOp::kSigmoidBackward:
      return call("sigmoid_backward", o[0], o[1]);
    case ElementOp::kTanhBackward:
      return call("tanh_backward", o[0], o[1]);
    case ElementOp::kEqual:
      return infix(o[0], "==", o[1]);
    case ElementOp::kNotEqual:
      return infix(o[0], "!=", o[1]);
    case ElementOp::kLess:
      return infix(o[0], "<", o[1]);
    case ElementOp::kLessEqual:
      return infix(o[0], "<=", o[1]);
    case ElementOp::kGreater:
      return infix(o[0], ">", o[1]);
    case ElementOp::kGreaterEqual:
      return infix(o[0], ">=", o[1]);
    case ElementOp::kWhere:
      return "(" + o[0] + " != 0 ? " + o[1] + " : " + o[2] + ")";
  }
  return {};
}

}  // namespace

std::string_view type_text(ComputeType type) {
  switch (type) {
    case ComputeType::kFloat:
      return "float";
    case ComputeType::kDouble:
      return "double";
    case ComputeType::kInteger:
      return "Integer";
    case ComputeType::kBool:
      return "bool";
  }
  return "float";
}

std::string_view storage_text(ir::Dtype dtype) {
  switch (dtype) {
    case ir::Dtype::kFloat64:
      return "double";
    case ir::Dtype::kBfloat16:
      return "Bfloat16";
    case ir::Dtype::kFloat16:
      return "Half";
    case ir::Dtype::kInt64:
      return "Integer";
    case ir::Dtype::kInt32:
      return "int";
    case ir::Dtype::kInt16:
      return "short";
    case ir::Dtype::kInt8:
      return "signed char";
    case ir::Dtype::kUint8:
      return "unsigned char";
    case ir::Dtype::kBool:
      return "bool";
    default:
      return "float";
  }
}

std::string operation_text(ElementOp op, ComputeType type, const std::array<OperandText, 3>& operands, bool is_narrow) {
  const bool is_integer = type == ComputeType::kInteger || type == ComputeType::kBool;
  const bool goes_by_double = is_integer && !is_exact(op);
  const std::string as = goes_by_double ? "double" : is_integer ? "Integer" : std::string(type_text(type));
  std::array<std::string, 3> given;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].text.empty()) continue;
    given[i] =
        type_text(operands[i].type) == as ? operands[i].text : "static_cast<" + as + ">(" + operands[i].text + ")";
  }
  const bool has_narrow = op == ElementOp::kNormalCdf || op == ElementOp::kGeluSlope || op == ElementOp::kExp;
  return (is_narrow && has_narrow && type == ComputeType::kFloat ? "narrow_" : "") + text_of(op, given);
}

std::string rounded_text(const std::string& value, ComputeType type, ir::Dtype dtype) {
  return "static_cast<" + std::string(type_text(type)) + ">(value_of(Stored<" + std::string(storage_text(dtype)) +
         ">::of(" + value + ")))";
}

}  // namespace thunder::executors::cuda
