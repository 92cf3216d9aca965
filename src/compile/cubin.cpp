#include <elf.h>

#include <cstring>
#include <optional>

#include "compile/artifact.hpp"

namespace jitune::compile {
namespace {

constexpr size_t kMaxCubinBytes = 64u << 20;
constexpr uint16_t kMachineCuda = 190;

/// Reads a T at `offset`, wherever it is aligned; nothing when it does not lie within `bytes`.
template <class T>
std::optional<T> read_at(std::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::optional<std::string_view> slice(std::string_view bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
  return bytes.substr(static_cast<size_t>(offset), static_cast<size_t>(size));
}

/// The NUL-terminated name at `offset` of a string table.
std::string_view name_at(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = table.substr(static_cast<size_t>(offset));
  return rest.substr(0, rest.find('\0'));
}

std::optional<Elf64_Shdr> section(std::string_view cubin, const Elf64_Ehdr& header, uint64_t index) {
  if (index >= header.e_shnum) return std::nullopt;
  return read_at<Elf64_Shdr>(cubin, header.e_shoff + index * sizeof(Elf64_Shdr));
}

/// True when a symbol table of the file defines `symbol`; nothing when a table does not lie within the file.
std::optional<bool> defines_symbol(std::string_view cubin, const Elf64_Ehdr& header, std::string_view symbol) {
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto table = section(cubin, header, i);
    if (!table) return std::nullopt;
    if (table->sh_type != SHT_SYMTAB) continue;
    const auto names_section = section(cubin, header, table->sh_link);
    if (!names_section) return std::nullopt;
    const auto symbols = slice(cubin, table->sh_offset, table->sh_size);
    const auto names = slice(cubin, names_section->sh_offset, names_section->sh_size);
    if (!symbols || !names) return std::nullopt;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols->size(); at += sizeof(Elf64_Sym)) {
      const auto entry = read_at<Elf64_Sym>(*symbols, at);
      if (entry->st_shndx != SHN_UNDEF && name_at(*names, entry->st_name) == symbol) return true;
    }
  }
  return false;
}

bool looks_like_ptx(std::string_view image) {
  const std::string_view head = image.substr(0, 4096);
  return head.find("\n.version ") != std::string_view::npos && head.find("\n.target ") != std::string_view::npos;
}

Result<void> check_ptx(std::string_view ptx, std::string_view symbol) {
  if (ptx.find('\0') != std::string_view::npos) return Failure{"the PTX is damaged: it holds a zero byte"};
  if (ptx.find_last_of('}') == std::string_view::npos) return Failure{"the PTX is damaged: it has no end"};
  if (symbol.empty() || ptx.find(".entry " + std::string(symbol) + "(") != std::string_view::npos) return {};
  return Failure{"the PTX does not hold the kernel '" + std::string(symbol) + "'"};
}

}  // namespace

Result<void> check_cubin(std::string_view cubin, std::string_view symbol) {
  if (cubin.empty()) return Failure{"the cubin is empty"};
  if (cubin.size() > kMaxCubinBytes)
    return Failure{"the cubin has " + std::to_string(cubin.size()) + " bytes, more than the 64 MiB jitune takes"};
  if (looks_like_ptx(cubin)) return check_ptx(cubin, symbol);
  const auto header = read_at<Elf64_Ehdr>(cubin, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64)
    return Failure{"the cubin is not a 64-bit ELF file"};
  if (header->e_machine != kMachineCuda)
    return Failure{"the ELF file is for machine " + std::to_string(header->e_machine) + ", not CUDA (190)"};
  const uint64_t table_bytes = uint64_t{header->e_shnum} * sizeof(Elf64_Shdr);
  if (header->e_shentsize != sizeof(Elf64_Shdr) || !slice(cubin, header->e_shoff, table_bytes))
    return Failure{"the cubin is damaged: its section table does not lie within its " + std::to_string(cubin.size()) +
                   " bytes"};
  // The program headers come last in a real cubin, so a file cut short lacks them first.
  if (header->e_phnum > 0 && !slice(cubin, header->e_phoff, uint64_t{header->e_phnum} * header->e_phentsize))
    return Failure{"the cubin is damaged: its program headers do not lie within its " + std::to_string(cubin.size()) +
                   " bytes"};
  for (uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto one = section(cubin, *header, i);
    if (one->sh_type != SHT_NOBITS && !slice(cubin, one->sh_offset, one->sh_size))
      return Failure{"the cubin is damaged: section " + std::to_string(i) + " does not lie within its " +
                     std::to_string(cubin.size()) + " bytes"};
  }
  if (symbol.empty()) return {};
  const auto found = defines_symbol(cubin, *header, symbol);
  if (!found) return Failure{"the cubin is damaged: its symbol table is broken"};
  if (!*found) return Failure{"the cubin does not hold the kernel '" + std::string(symbol) + "'"};
  return {};
}

}  // namespace jitune::compile
