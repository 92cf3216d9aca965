#include <filesystem>

#include "space/instance_state.hpp"
#include "space/scalar_bytes.hpp"

namespace jitune::space {
namespace {

bool is_floating(Type type) {
  return type == Type::half || type == Type::bfloat16 || type == Type::float32 || type == Type::float64 ||
         type == Type::fp8_e4m3 || type == Type::fp8_e5m2;
}

bool is_output(ArgKind kind) {
  return kind == ArgKind::out || kind == ArgKind::inout || kind == ArgKind::zeroed;
}

Failure arg_failure(const ArgForm& form, const std::string& message) {
  return {"arg '" + form.arg.name + "': " + message};
}

Result<std::vector<int64_t>> numbers(const ArgForm& form, const char* what, const std::vector<Expression>& expressions,
                                     const std::vector<Cell>& cells) {
  std::vector<int64_t> list;
  for (const Expression& expression : expressions) {
    const Result<int64_t> value = number(what, expression, cells);
    if (!value) return arg_failure(form, value.error());
    list.push_back(*value);
  }
  return list;
}

Result<void> set_scalar(const ArgForm& form, const std::vector<Cell>& cells, ArgSpec& spec) {
  Result<std::vector<uint8_t>> bytes = std::vector<uint8_t>();
  if (form.is_decimal) {
    bytes = scalar_bytes(*spec.type, form.decimal);
  } else {
    const Result<int64_t> value = number("value", form.value, cells);
    if (!value) return arg_failure(form, value.error());
    bytes = scalar_bytes(*spec.type, *value);
  }
  if (!bytes) return arg_failure(form, bytes.error());
  spec.scalar = std::move(*bytes);
  return {};
}

Result<void> set_buffer(const ArgForm& form, const std::vector<Cell>& cells, const std::string& base_directory,
                        ArgSpec& spec) {
  const Result<int64_t> count = number("count", form.count, cells);
  if (!count) return arg_failure(form, count.error());
  int64_t bytes = 0;
  if (*count < 0 || __builtin_mul_overflow(*count, spec.element_bytes, &bytes))
    return arg_failure(form,
                       "count `" + form.count.text() + "` is " + std::to_string(*count) + ", which no buffer can have");
  spec.count = *count;
  spec.fill = form.arg.fill;
  if (spec.fill.kind == Fill::Kind::file && !std::filesystem::path(spec.fill.path).is_absolute())
    spec.fill.path = (std::filesystem::absolute(base_directory.empty() ? "." : base_directory) / spec.fill.path)
                         .lexically_normal()
                         .string();
  if (spec.fill.kind == Fill::Kind::indices) {
    if (spec.type && (is_floating(*spec.type) || *spec.type == Type::boolean))
      return arg_failure(form, "fill = indices needs an integer type, not " + std::string(type_info(*spec.type).word));
    const Result<int64_t> bound = number("fill indices", form.bound, cells);
    if (!bound) return arg_failure(form, bound.error());
    if (*bound < 1 && *count > 0)
      return arg_failure(form, "the bound of indices `" + form.bound.text() + "` is " + std::to_string(*bound) +
                                   "; there is no index below it");
    spec.index_bound = *bound;
  }
  if (!is_output(spec.kind)) return {};
  if (form.arg.tolerance)
    spec.tolerance = *form.arg.tolerance;
  else if (spec.type && is_floating(*spec.type))
    spec.tolerance = Tolerance::within(1e-2, 1e-3);
  return {};
}

Result<void> set_tensor_map(const ArgForm& form, const std::vector<Cell>& cells, ArgSpec& spec) {
  struct Part {
    const char* what;
    const std::vector<Expression>* expressions;
    std::vector<int64_t>* out;
  };
  for (const Part& part :
       {Part{"dims", &form.dims, &spec.dims}, Part{"strides_bytes", &form.strides_bytes, &spec.strides_bytes},
        Part{"box", &form.box, &spec.box}, Part{"element_strides", &form.element_strides, &spec.element_strides}}) {
    Result<std::vector<int64_t>> list = numbers(form, part.what, *part.expressions, cells);
    if (!list) return list.failure();
    *part.out = std::move(*list);
  }
  if (spec.element_strides.empty()) spec.element_strides.assign(spec.dims.size(), 1);
  spec.over = form.over;
  spec.swizzle = form.arg.swizzle;
  spec.interleave = form.arg.interleave;
  spec.l2_promotion = form.arg.l2_promotion;
  spec.oob_nan = form.arg.oob_nan;
  return {};
}

}  // namespace

std::optional<Type> type_of(const ArgForm& arg, const std::vector<Cell>& cells) {
  if (arg.type_slot < 0) return arg.type;
  return static_cast<Type>(cells[static_cast<size_t>(arg.type_slot)].value);
}

Result<ArgSpec> make_arg(const ArgForm& form, const std::vector<Cell>& cells, const std::string& base_directory) {
  ArgSpec spec;
  spec.kind = form.arg.kind;
  spec.name = form.arg.name;
  spec.pass = form.arg.pass && form.arg.kind != ArgKind::symbol;
  spec.type = type_of(form, cells);
  spec.element_bytes = spec.type ? type_info(*spec.type).size_bytes : 1;
  Result<void> set;
  if (spec.kind == ArgKind::scalar)
    set = set_scalar(form, cells, spec);
  else if (spec.kind == ArgKind::tensor_map)
    set = set_tensor_map(form, cells, spec);
  else
    set = set_buffer(form, cells, base_directory, spec);
  if (!set) return set.failure();
  return spec;
}

// The limits are those that the CUDA Driver API's reference gives for cuTensorMapEncodeTiled.
Result<void> check_tensor_map(const ArgSpec& map, const ArgSpec& buffer) {
  const auto failure = [&](const std::string& message) { return Failure{"arg '" + map.name + "': " + message}; };
  int64_t reach_bytes = map.element_bytes;
  for (size_t i = 0; i < map.dims.size(); ++i) {
    if (map.dims[i] < 1 || map.dims[i] > (int64_t{1} << 32))
      return failure("dims[" + std::to_string(i) + "] is " + std::to_string(map.dims[i]) + "; 1 to 2^32 is possible");
    if (map.box[i] < 1 || map.box[i] > 256)
      return failure("box[" + std::to_string(i) + "] is " + std::to_string(map.box[i]) + "; 1 to 256 is possible");
    if (map.element_strides[i] < 1 || map.element_strides[i] > 8) return failure("element_strides must be from 1 to 8");
    const int64_t stride = i == 0 ? map.element_bytes : map.strides_bytes[i - 1];
    const int64_t step = map.interleave == 32 ? 32 : 16;
    if (i > 0 && (stride < 1 || stride % step != 0 || stride >= (int64_t{1} << 40)))
      return failure("strides_bytes[" + std::to_string(i - 1) + "] is " + std::to_string(stride) +
                     "; it must be a multiple of " + std::to_string(step) + " below 2^40");
    int64_t part = 0;
    if (__builtin_mul_overflow(map.dims[i] - 1, stride, &part) ||
        __builtin_add_overflow(reach_bytes, part, &reach_bytes))
      return failure("dims and strides_bytes are beyond 64 bits");
  }
  const int64_t inner_bytes = map.box[0] * map.element_bytes;
  if (map.interleave == 0 && inner_bytes % 16 != 0)
    return failure("box[0] is " + std::to_string(inner_bytes) + " bytes; it must be a multiple of 16");
  if (map.interleave == 0 && map.swizzle != 0 && inner_bytes > map.swizzle)
    return failure("box[0] is " + std::to_string(inner_bytes) + " bytes, more than the swizzle's " +
                   std::to_string(map.swizzle));
  if (reach_bytes > buffer.bytes())
    return failure("dims and strides_bytes reach " + std::to_string(reach_bytes) + " bytes, but '" + buffer.name +
                   "' has " + std::to_string(buffer.bytes()));
  return {};
}

Result<std::vector<ArgSpec>> Instance::args(const Config& config, const KernelFacts& facts) const {
  Result<std::vector<Cell>> cells = state_->cells(config);
  if (!cells) return cells.failure();
  set_kernel_cells(facts, state_->symbols, *cells);
  const auto failure = [&](const std::string& message) {
    return Failure{"kernel '" + state_->model->name() + "': " + message + ", for " + short_text(state_->problem)};
  };
  std::vector<ArgSpec> specs;
  for (const ArgForm& form : state_->form->args) {
    Result<ArgSpec> spec = make_arg(form, *cells, state_->model->definition().base_directory);
    if (!spec) return failure(spec.error());
    specs.push_back(std::move(*spec));
  }
  for (const ArgSpec& spec : specs) {
    if (spec.kind != ArgKind::tensor_map) continue;
    if (const Result<void> good = check_tensor_map(spec, specs[static_cast<size_t>(spec.over)]); !good)
      return failure(good.error());
  }
  return specs;
}

}  // namespace jitune::space
