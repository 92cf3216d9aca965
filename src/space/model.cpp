#include "space/model.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "space/form_builder.hpp"
#include "space/names.hpp"

namespace jitune::space {
namespace {

[[noreturn]] void rethrow(const Error& error, const std::string& kernel, const std::string& prefix) {
  throw Error(error.code(), prefix + error.message(), error.kernel().empty() ? kernel : error.kernel(), error.text(),
              error.column());
}

/// The definition that results when `variant` takes effect.
KernelDefinition merge(const KernelDefinition& base, const Variant& variant) {
  KernelDefinition merged = base;
  if (variant.source_file || variant.source_text) {
    // A reference that stands in the kernel's source stays there.
    if (merged.reference && merged.reference->source_file.empty() && merged.reference->source_text.empty()) {
      merged.reference->source_file = base.source_file;
      merged.reference->source_text = base.source_text;
    }
    merged.source_file = variant.source_file.value_or("");
    merged.source_text = variant.source_text.value_or("");
  }
  if (variant.entry) merged.entry = *variant.entry;
  if (variant.arch) merged.arch = *variant.arch;
  if (variant.options) merged.options = *variant.options;
  if (variant.params) {
    merged.params = *variant.params;
    merged.configs.clear();
  }
  if (variant.derived) merged.derived = *variant.derived;
  if (variant.require) merged.require = *variant.require;
  if (variant.launch) merged.launch = *variant.launch;
  if (variant.args) merged.args = *variant.args;
  if (variant.defaults) merged.defaults = *variant.defaults;
  if (variant.perf_model) merged.perf_model = *variant.perf_model;
  if (variant.features) merged.features = *variant.features;
  return merged;
}

Value canonical_word(const Value& value) {
  const TypeInfo* type = value.is_word() ? find_type(value.as_word()) : nullptr;
  return type != nullptr ? Value(type->type) : value;
}

void replace_second_names(std::vector<Param>& params) {
  for (Param& param : params)
    for (Value& value : param.values) value = canonical_word(value);
}

bool is_printable(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return std::iscntrl(static_cast<unsigned char>(c)) != 0 || std::isspace(static_cast<unsigned char>(c)) != 0;
  });
}

void check_kernel_name(const std::string& name) {
  if (name.empty() || !is_printable(name) || name.size() > 200)
    FormBuilder::fail("a kernel needs a name of 1 to 200 characters without spaces: it stands in keys and messages",
                      name);
}

void check_host_reference(const KernelDefinition& definition) {
  if (!definition.host_reference) return;
  if (definition.reference) FormBuilder::fail("reference and host_reference are both given; keep one");
  const std::string& version = definition.host_reference->version;
  if (version.empty() || version.size() > 100 || !is_printable(version))
    FormBuilder::fail(
        "host_reference needs a version of 1 to 100 characters: it is part of the key, so that winners are verified "
        "again when the function changes",
        version);
}

void check_problem(const std::vector<ProblemValue>& problem) {
  std::set<std::string> seen;
  for (const ProblemValue& value : problem) {
    if (!is_identifier(value.name))
      FormBuilder::fail("a problem value's name must be letters, digits and underscores", value.name, 1);
    if (const std::string why = why_reserved(value.name); !why.empty())
      FormBuilder::fail("a problem value can't be called '" + value.name + "': " + why, value.name);
    if (!seen.insert(value.name).second) FormBuilder::fail("the problem value '" + value.name + "' is given twice");
    if (value.ignore && !value.bucket.empty())
      FormBuilder::fail("the problem value '" + value.name + "' has a bucket and `ignore`; one of them is meaningless");
  }
}

constexpr size_t kMostTuneAt = 64;

std::vector<Model::TuneAtForm> read_tune_at(FormBuilder& builder) {
  const KernelDefinition& definition = builder.definition();
  std::vector<Model::TuneAtForm> forms;
  if (definition.tune_at.size() > kMostTuneAt)
    FormBuilder::fail("tune_at has " + std::to_string(definition.tune_at.size()) + " entries, at most " +
                      std::to_string(kMostTuneAt) + " can be given");
  for (const TuneAt& entry : definition.tune_at) {
    if (!(entry.weight > 0) || !std::isfinite(entry.weight))
      FormBuilder::fail("a weight of tune_at must be more than 0: leave the entry out instead",
                        std::to_string(entry.weight));
    Model::TuneAtForm form;
    form.weight = entry.weight;
    bool is_coarse = false;
    for (const auto& [name, text] : entry.problem) {
      const auto known = std::find_if(definition.problem.begin(), definition.problem.end(),
                                      [&](const ProblemValue& value) { return value.name == name; });
      if (known == definition.problem.end()) {
        std::vector<std::string> names;
        for (const ProblemValue& value : definition.problem) names.push_back(value.name);
        FormBuilder::fail("tune_at: there is no problem value '" + name + "'" + did_you_mean(name, names) +
                              "; there are " + join(names),
                          name);
      }
      const int slot = builder.problem_slot(name);
      if (std::any_of(form.values.begin(), form.values.end(), [&](const auto& value) { return value.first == slot; }))
        FormBuilder::fail("tune_at: an entry sets '" + name + "' twice");
      is_coarse = is_coarse || known->ignore || !known->bucket.empty();
      form.values.emplace_back(slot, builder.parse("tune_at of " + name, text, kProblem | kDevice));
      for (const int used : form.values.back().second.slots())
        for (const ProblemValue& value : definition.problem)
          if (value.ignore && builder.problem_slot(value.name) == used)
            FormBuilder::fail("tune_at of " + name + " depends on '" + value.name +
                                  "', which keys ignore: all launches of a key are tuned at the same problems",
                              text);
    }
    if (!is_coarse) {
      std::string names;
      for (const auto& [name, text] : entry.problem) names += (names.empty() ? "'" : ", '") + name + "'";
      FormBuilder::fail("an entry of tune_at sets " + (names.empty() ? "nothing" : names + " alone") +
                        ", no problem value with a bucket or `ignore`: each other problem has a key of its own and is "
                        "tuned as it is launched");
    }
    forms.push_back(std::move(form));
  }
  return forms;
}

}  // namespace

std::shared_ptr<const Model> Model::make(KernelDefinition definition) {
  std::shared_ptr<Model> model(new Model());
  model->definition_ = std::move(definition);
  KernelDefinition& own = model->definition_;
  Symbols& symbols = model->symbols_;
  std::string where;
  try {
    check_kernel_name(own.name);
    check_problem(own.problem);
    check_host_reference(own);
    replace_second_names(own.params);
    for (auto& config : own.configs)
      for (auto& [name, value] : config) value = canonical_word(value);
    for (size_t i = 0; i < own.variants.size(); ++i) {
      Variant& variant = own.variants[i];
      if (variant.name.empty()) variant.name = "variant " + std::to_string(i + 1);
      if (variant.params) replace_second_names(*variant.params);
    }

    for (const std::string& name : device_names()) symbols.slot(name);
    for (const std::string& name : kernel_names()) symbols.slot(name);
    for (const ProblemValue& value : own.problem) symbols.slot(value.name);

    FormBuilder base(own, symbols);
    std::vector<std::shared_ptr<Form>> forms{base.build()};
    for (const ProblemValue& value : own.problem)
      model->buckets_.push_back(value.bucket.empty() ? Expression()
                                                     : base.parse("bucket of " + value.name, value.bucket, kProblem));
    model->tune_at_ = read_tune_at(base);
    std::set<std::string> names;
    for (const Variant& variant : own.variants) {
      where = "variant '" + variant.name + "': ";
      if (!names.insert(variant.name).second) FormBuilder::fail("two variants have this name");
      if (variant.when.empty()) FormBuilder::fail("`when` is missing; without one it would always replace the kernel");
      const KernelDefinition merged = merge(own, variant);
      FormBuilder builder(merged, symbols);
      std::shared_ptr<Form> form = builder.build();
      form->name = variant.name;
      form->when = builder.parse("when", variant.when, kProblem | kDevice);
      forms.push_back(std::move(form));
    }
    where.clear();
    for (const Expression& bucket : model->buckets_)
      for (const int slot : bucket.number_slots())
        for (const auto& form : forms) form->needs_number.emplace(slot, bucket.text());
    model->forms_.assign(forms.begin(), forms.end());
  } catch (const Error& error) {
    rethrow(error, own.name, where);
  }
  return model;
}

}  // namespace jitune::space
