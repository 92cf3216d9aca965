#pragma once

#include <memory>
#include <string>
#include <vector>

#include "space/form.hpp"

namespace jitune::space {

/// What an expression or a `{NAME}` may use. Flags.
enum Allowed : unsigned {
  kProblem = 1,
  kParams = 2,  ///< derived values come with them
  kDevice = 4,
  kKernel = 8,     ///< kernel.*: known after compiling
  kNoCoarse = 16,  ///< no problem value with a bucket or `ignore`, nor what is derived from one: it reaches the build
  kNoConfig = 32,  ///< derived values only as far as they do not depend on params
};
constexpr unsigned kAnyConfig = kProblem | kParams | kDevice;

/// Turns one form of a definition (variants already merged) into a Form. Throws Error without the kernel's name.
class FormBuilder {
 public:
  FormBuilder(const KernelDefinition& definition, Symbols& symbols);

  std::shared_ptr<Model::Form> build();

  /// `context` says where the text stands: `require`, `launch.grid[0]`.
  Expression parse(const std::string& context, const std::string& text, unsigned allowed);
  [[noreturn]] static void fail(const std::string& message, const std::string& text = {}, int column = 0);

  const KernelDefinition& definition() const { return definition_; }
  /// The slot of the problem value `name`, or -1.
  int problem_slot(const std::string& name) const;
  void need_type(int slot, const std::string& what);

 private:
  struct SlotFacts {
    bool known = false, problem = false, param = false, derived = false, device = false, kernel = false;
    bool coarse = false;                                        ///< bucketed or ignored, or derived from such a value
    bool config = false;                                        ///< a param, or derived from one
    bool kind_known = false, is_word = false, is_type = false;  ///< of params
  };

  void name_slots();
  void check_new_name(const std::string& name, const char* what, SlotFacts facts);
  std::string refuse(int slot, unsigned allowed) const;
  void check_kinds(const Expression& expression);
  void read_source();
  void read_header_texts();
  void read_params();
  void read_configs();
  void read_derived();
  void read_entry_and_options();
  TextTemplate parse_entry(const std::string& entry, unsigned allowed, bool& is_template);
  std::vector<OptionForm> parse_options(const std::vector<CompileOption>& given, unsigned allowed);
  LaunchExpressions parse_launch(const LaunchGeometry& launch, unsigned allowed);
  std::string load_source(const std::string& file, const std::string& text, std::string& name) const;
  void read_reference();
  std::vector<int> reference_args(const Reference& reference) const;
  void read_macros();
  void read_launch();
  void read_perf_model();
  void read_features();
  void read_defaults();
  void check_constant_default(const DefaultForm& rule);
  Expression default_value(const ParamForm& param, const std::string& rule, const std::string& text);
  int brace(const std::string& name, int column, const std::string& text, const char* where, unsigned allowed);

  const KernelDefinition& definition_;
  Symbols& symbols_;
  std::shared_ptr<Model::Form> form_;
  std::vector<SlotFacts> facts_;
};

/// The index of the param's value that `value` is, or -1.
int find_value(const ParamForm& param, const Evaluation& value);
/// `128, 256, 512`.
std::string list_values(const ParamForm& param);

/// The args of a form, checked. In model_args.cpp.
std::vector<ArgForm> build_args(FormBuilder& builder);

/// Why an author may not give `option`, or "": jitune sets it itself, or it writes files. In model_options.cpp.
std::string why_refused(const std::string& option);

/// The patterns that keys and studies hold, as canonical JSON. In patterns.cpp.
std::string launch_pattern_json(const KernelDefinition& definition);
std::string reference_pattern_json(const Reference& reference);
std::string space_definition_json(const KernelDefinition& definition);

}  // namespace jitune::space
