#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jitune/definition.hpp"
#include "space/config.hpp"
#include "space/device.hpp"
#include "space/expression.hpp"

namespace jitune::space {

/// A validated definition: every expression parsed, every name known, one Form for the kernel itself and one for each
/// variant. Immutable: shared by threads and by everything bound to it.
class Model {
 public:
  /// Checks all that can be checked without a problem. Throws Error{bad_definition} or Error{bad_expression} with the
  /// kernel's name, the offending text and its column. Reads the source files.
  /// Refused, with the reason: params without values, double or reserved names, more than 64 params, a default rule
  /// that names an unknown param or leaves one out, a last default rule with `when`, `{NAME}` of an unknown name in
  /// entry or options, problem values with a bucket in entry or options, arguments that point inside structs, and
  /// options that jitune sets itself (--gpu-architecture, --std is allowed) or that write files.
  static std::shared_ptr<const Model> make(KernelDefinition definition);

  const KernelDefinition& definition() const { return definition_; }
  const std::string& name() const { return definition_.name; }

  /// Names of problem values in the definition's order.
  const std::vector<ProblemValue>& problem() const { return definition_.problem; }

  struct Form;
  const std::vector<std::shared_ptr<const Form>>& forms() const { return forms_; }  ///< [0] is the kernel itself
  const Symbols& symbols() const { return symbols_; }
  const std::vector<Expression>& buckets() const { return buckets_; }  ///< by problem value; empty() where none

  /// An entry of tune_at: the values that it sets, by slot.
  struct TuneAtForm {
    std::vector<std::pair<int, Expression>> values;
    double weight = 1;
  };
  const std::vector<TuneAtForm>& tune_at() const { return tune_at_; }

 private:
  Model() = default;
  KernelDefinition definition_;
  Symbols symbols_;
  std::vector<Expression> buckets_;
  std::vector<TuneAtForm> tune_at_;
  std::vector<std::shared_ptr<const Form>> forms_;
};

}  // namespace jitune::space
