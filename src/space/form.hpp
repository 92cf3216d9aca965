#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "space/checks.hpp"
#include "space/model.hpp"
#include "space/text_template.hpp"

namespace jitune::space {

/// A param with its values as they are computed with.
struct ParamForm {
  std::string name;
  int slot = -1;
  std::vector<Value> values;
  std::vector<Cell> cells;  ///< of the values, in the same order
};

struct DerivedForm {
  std::string name;
  int slot = -1;
  Expression expression;
  bool is_macro = false;
};

struct OptionForm {
  TextTemplate option;
  Expression when;  ///< empty: always
};

struct DefaultForm {
  Expression when;                 ///< empty: always
  std::string text;                ///< the rule for messages: `default rule 1 (when hidden >= 4096)`
  std::vector<Expression> values;  ///< one a param, in the form's order of params
};

struct ArgForm {
  Arg arg;                   ///< as the author wrote it, second type names replaced
  int type_slot = -1;        ///< the problem value that holds the type, or -1
  std::optional<Type> type;  ///< when it does not depend on the problem; nothing for `bytes`
  bool is_bytes = false;
  int over = -1;
  Expression count, value, bound;
  bool is_decimal = false;  ///< value is a decimal number
  double decimal = 0;
  std::vector<Expression> dims, strides_bytes, box, element_strides;
};

/// The trusted kernel that results are compared with.
struct ReferenceForm {
  bool own_source = false;  ///< false: it stands in the kernel's source, which is compiled with a config's macros then
  std::string source_text, source_name;
  std::vector<std::string> include_dirs;
  TextTemplate entry;
  bool is_template = false;
  std::vector<OptionForm> options;
  LaunchExpressions launch;
  std::vector<int> args;  ///< indices of the form's args, in the order of the reference's parameters
  std::string pattern;    ///< canonical JSON, as the author wrote it, without the source
};

/// The kernel itself, or one of its variants: everything parsed, names bound to slots.
struct Model::Form {
  std::string name;  ///< "" for the kernel itself
  Expression when;
  std::string source_text, source_name;
  std::vector<std::string> include_dirs;
  std::vector<HeaderText> header_texts;
  TextTemplate entry;
  bool is_template = false;
  std::vector<OptionForm> options;
  std::string arch;
  bool defines_before_includes = false;
  std::vector<ParamForm> params;     ///< sorted by name
  std::vector<DerivedForm> derived;  ///< each after those that it is computed from
  std::vector<Expression> require;
  bool is_list = false;                   ///< explicit configs instead of a grid
  std::vector<std::vector<int>> configs;  ///< indices of values, in the order of params
  LaunchExpressions launch;
  std::vector<ArgForm> args;
  std::vector<DefaultForm> defaults;
  std::optional<ReferenceForm> reference;
  Expression perf_model;  ///< empty: none, or perf_function
  std::function<double(const std::map<std::string, Value>&)> perf_function;
  int perf_top_k = 0;
  std::vector<std::pair<std::string, Expression>> features;  ///< sorted by name
  std::vector<std::pair<std::string, int>> macros;           ///< name and slot, sorted by name
  std::map<int, std::string> needs_number, needs_type;  ///< problem values by slot, and what needs that kind of them
  std::string launch_pattern, space_definition;         ///< canonical JSON, as the author wrote it
};

/// The names that expressions may use of a device, in the order in which `set_device_cells` writes them.
const std::vector<std::string>& device_names();
/// And of a compiled kernel.
const std::vector<std::string>& kernel_names();

void set_device_cells(const DeviceInfo& device, const Symbols& symbols, std::vector<Cell>& cells);

/// The text of a value in kernel source: type words in their C++ spelling.
std::string cpp_text(const Value& value);

/// The cell of `value`; a word is looked up, and made if it is new.
Cell to_cell(const Value& value, Symbols& symbols);

}  // namespace jitune::space
