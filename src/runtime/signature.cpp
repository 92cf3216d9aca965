#include "runtime/signature.hpp"

namespace jitune::runtime {
namespace {

bool is_floating(Type type) {
  switch (type) {
    case Type::half:
    case Type::bfloat16:
    case Type::float32:
    case Type::float64:
    case Type::fp8_e4m3:
    case Type::fp8_e5m2:
      return true;
    default:
      return false;
  }
}

std::string spelled(const ArgumentType& type) {
  const std::string size = std::to_string(type.size);
  switch (type.kind) {
    case ArgumentType::Kind::pointer:
      return type.element_size == 0 ? "a pointer"
                                    : "a pointer to " + std::to_string(type.element_size) + "-byte elements";
    case ArgumentType::Kind::const_pointer:
      return type.element_size == 0 ? "a pointer to const"
                                    : "a pointer to const " + std::to_string(type.element_size) + "-byte elements";
    case ArgumentType::Kind::integer:
      return "a " + size + "-byte integer";
    case ArgumentType::Kind::floating:
      return "a " + size + "-byte floating value";
    case ArgumentType::Kind::other:
      return "a " + size + "-byte object";
  }
  return "something else";
}

/// What is wrong with one argument, or "".
std::string mismatch(const Arg& arg, const ArgumentType& type) {
  using Kind = ArgumentType::Kind;
  const TypeInfo* info = find_type(arg.type);  // null: the type follows from the problem, or is `bytes`
  if (arg.kind == ArgKind::scalar) {
    if (type.kind == Kind::pointer || type.kind == Kind::const_pointer) return "it is a scalar";
    if (info == nullptr) return "";
    if (type.size != static_cast<size_t>(info->size_bytes))
      return "it is a scalar of type " + arg.type + ", " + std::to_string(info->size_bytes) + " bytes";
    if (type.kind == Kind::floating && !is_floating(info->type)) return "it is a scalar of type " + arg.type;
    if (type.kind == Kind::integer && is_floating(info->type)) return "it is a scalar of type " + arg.type;
    return "";
  }
  if (type.kind != Kind::pointer && type.kind != Kind::const_pointer) return "it is a buffer: pass a device pointer";
  if (type.kind == Kind::const_pointer && arg.kind != ArgKind::in)
    return "the kernel writes to it: pass a pointer to non-const";
  if (info != nullptr && type.element_size != 0 && type.element_size != static_cast<size_t>(info->size_bytes))
    return "its elements are of type " + arg.type + ", " + std::to_string(info->size_bytes) + " bytes";
  return "";
}

}  // namespace

std::vector<const Arg*> caller_args(const std::vector<Arg>& args) {
  std::vector<const Arg*> passed;
  for (const Arg& arg : args)
    if (arg.kind != ArgKind::scratch && arg.kind != ArgKind::tensor_map && arg.kind != ArgKind::symbol)
      passed.push_back(&arg);
  return passed;
}

void check_signature(const std::string& kernel, const std::vector<Arg>& args, std::span<const ArgumentType> signature) {
  const auto passed = caller_args(args);
  if (passed.size() != signature.size()) {
    std::string names;
    for (const Arg* arg : passed) names += (names.empty() ? "" : ", ") + arg->name;
    throw Error(ErrorCode::bad_definition,
                "the C++ signature has " + std::to_string(signature.size()) + " parameters, the definition takes " +
                    std::to_string(passed.size()) + " from the caller: " + names,
                kernel);
  }
  for (size_t i = 0; i < passed.size(); ++i) {
    const std::string wrong = mismatch(*passed[i], signature[i]);
    if (!wrong.empty())
      throw Error(ErrorCode::bad_definition,
                  "parameter " + std::to_string(i + 1) + " of the C++ signature is " + spelled(signature[i]) +
                      ", but for arg '" + passed[i]->name + "' " + wrong,
                  kernel);
  }
}

}  // namespace jitune::runtime
