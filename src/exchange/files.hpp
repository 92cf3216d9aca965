#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/result.hpp"
#include "store/record.hpp"
#include "store/store.hpp"

/// Winners in files: databases, JSON that a person can review and commit, tables.
namespace jitune::exchange {

struct Item {
  store::WinnerRecord record;
  std::string place;  ///< `winners.csv:7`, `winners/gemm.json`: for messages
};

/// What a file gave, as it stands there (one key may come twice), and what was refused of it.
struct Winners {
  enum class Format : unsigned char { database, json, csv };
  Format format = Format::database;
  std::vector<Item> items;
  std::map<std::string, std::vector<std::string>> refused;  ///< places by reason
};
const char* to_string(Winners::Format format);

/// What a path holds, by its name alone: `.json` or a directory of such files, `.csv`, anything else is a database.
/// The file is not opened: that of a database may be open in this process, and closing it twice would drop its locks.
Winners::Format format_of(const std::string& path);

/// Reads winners from a file or a directory (all .json below it). Each is checked: the key's fields give its SHA-256,
/// values are values, times are times, cubins are what their SHA-256 says. Fails when the file is none of the above,
/// and names what is wrong.
Result<Winners> read_winners(const std::string& path, Log* log = nullptr);

/// The records as a store to look up in: a database opened for reading, or a file's records in memory.
/// `note` says what was refused, "" when nothing was.
Result<std::unique_ptr<store::Store>> open_source(const std::string& path, Log* log, std::string* note = nullptr);

/// All records as one document. Numbers and texts come back as they were; cubins and sources are left out.
std::string to_json(const std::vector<store::WinnerRecord>& records);

/// One document for each NVRTC, kernel, problem and device, by relative path:
/// `nvrtc-13.0.88/gemm/K=4096,M=4096,N=4096,T=bfloat16,device_name=NVIDIA_H200.json`.
std::map<std::string, std::string> to_json_tree(const std::vector<store::WinnerRecord>& records);

/// One table: columns for the problem's values, the config's, times and the fields of the key.
std::string to_csv(const std::vector<store::WinnerRecord>& records);

/// Whether JSON is nested no deeper than winners ever are. What is nested without bound would overflow the stack of
/// whoever copies or writes it; a text that is no JSON at all may pass.
bool is_shallow(const std::string& json);

// Readers of one text each; what they refuse they add to `into`.
Result<void> read_json(const std::string& text, const std::string& place, Winners& into);
Result<void> read_csv(const std::string& text, const std::string& place, Winners& into);

/// `3 refused: 2 ...; 1 ...`, "" when nothing was.
std::string refused_text(const std::map<std::string, std::vector<std::string>>& refused);

}  // namespace jitune::exchange
