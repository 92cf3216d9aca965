#include "compile/ptxas.hpp"

#include <charconv>

namespace jitune::compile {
namespace {

/// Takes the next line off `text`.
std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

/// The number right before `unit` (" registers", " bytes smem"), or `fallback`.
int64_t number_before(std::string_view line, std::string_view unit, int64_t fallback) {
  const size_t at = line.find(unit);
  if (at == std::string_view::npos) return fallback;
  size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int64_t number = fallback;
  std::from_chars(line.data() + begin, line.data() + at, number);
  return number;
}

bool is_info(std::string_view line) {
  // `ptxas info    : Used 24 registers`, and its continuation `ptxas         .     304 bytes stack frame`
  constexpr std::string_view kTool = "ptxas";
  if (line.substr(0, kTool.size()) != kTool) return false;
  line.remove_prefix(kTool.size());
  const size_t word = line.find_first_not_of(' ');
  if (word == std::string_view::npos || word == 0) return false;
  line.remove_prefix(word);
  return line.substr(0, 4) == "info" || line.front() == '.';
}

}  // namespace

PtxasFacts read_ptxas_facts(std::string_view log, std::string_view symbol) {
  const std::string quoted = "'" + std::string(symbol) + "'";
  PtxasFacts facts;
  bool in_kernel = false, in_properties = false;
  while (!log.empty()) {
    const std::string_view line = next_line(log);
    if (!is_info(line)) continue;
    if (line.find("Compiling entry function") != std::string_view::npos) {
      in_kernel = line.find(quoted) != std::string_view::npos;
      continue;
    }
    if (!in_kernel) continue;
    constexpr std::string_view kProperties = "Function properties for ";
    if (const size_t at = line.find(kProperties); at != std::string_view::npos) {
      in_properties = line.substr(at + kProperties.size()) == symbol;
    } else if (in_properties && line.find(" bytes stack frame") != std::string_view::npos) {
      facts.stack_bytes = number_before(line, " bytes stack frame", 0);
      facts.spill_store_bytes = number_before(line, " bytes spill stores", 0);
      facts.spill_load_bytes = number_before(line, " bytes spill loads", 0);
    } else if (line.find(" registers") != std::string_view::npos && line.find("Used ") != std::string_view::npos) {
      facts.found = true;
      facts.regs = static_cast<int>(number_before(line, " registers", 0));
      facts.static_smem_bytes = number_before(line, " bytes smem", 0);
    }
  }
  return facts;
}

std::string without_ptxas_info(std::string_view log) {
  std::string kept;
  while (!log.empty()) {
    const std::string_view line = next_line(log);
    if (!is_info(line)) kept.append(line).append("\n");
  }
  return kept;
}

}  // namespace jitune::compile
