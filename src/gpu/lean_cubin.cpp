#include "gpu/lean_cubin.hpp"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace jitune::gpu {
namespace {

constexpr uint16_t kMachineCuda = 190;
constexpr uint8_t kKnownAbi = 8;  // e_ident's, of CUDA 13: e_flags hold the device in bits 8 to 15
constexpr uint32_t kFirstDevice = 75, kLastDevice = 121;
constexpr size_t kWorthwhile = 100;  // variables
constexpr size_t kInstructionBytes = 16;
constexpr uint64_t kAddressTableBank = 4;

/// An array of T within a file, read by copies: nothing in a cubin need be aligned.
template <class T>
class Table {
 public:
  Table(std::string& bytes, uint64_t offset, uint64_t size)
      : at_(offset <= bytes.size() && size <= bytes.size() - offset ? bytes.data() + offset : nullptr),
        count_(at_ == nullptr ? 0 : static_cast<size_t>(size / sizeof(T))) {}
  bool ok() const { return at_ != nullptr; }
  size_t size() const { return count_; }
  T get(size_t i) const {
    T value;
    std::memcpy(&value, at_ + i * sizeof(T), sizeof value);
    return value;
  }
  void set(size_t i, const T& value) { std::memcpy(at_ + i * sizeof(T), &value, sizeof value); }

 private:
  char* at_;
  size_t count_;
};

/// The NUL-terminated text at `offset` of a string table; "" outside of it.
std::string_view text_at(const std::string& bytes, const Elf64_Shdr& strings, uint64_t offset) {
  if (strings.sh_offset > bytes.size() || strings.sh_size > bytes.size() - strings.sh_offset) return {};
  const auto table = std::string_view(bytes).substr(strings.sh_offset, strings.sh_size);
  if (offset >= table.size()) return {};
  const auto rest = table.substr(offset);
  return rest.substr(0, rest.find('\0'));
}

bool is_of_header_library(std::string_view symbol) {
  for (const std::string_view part : {"N4cuda", "N3cub", "N6thrust", "__cccl"})
    if (symbol.find(part) != std::string_view::npos) return symbol.starts_with("_Z");
  return false;
}

bool reads_address_table(std::string& bytes, const Elf64_Shdr& code) {
  struct Instruction {
    uint64_t low, high;
  };
  static_assert(sizeof(Instruction) == kInstructionBytes);
  const Table<Instruction> text(bytes, code.sh_offset, code.sh_size);
  if (!text.ok() || code.sh_size % kInstructionBytes != 0) return true;
  for (size_t i = 0; i < text.size(); ++i) {
    const uint64_t low = text.get(i).low, form = low >> 9 & 7;
    if ((form == 3 || form == 5) && (low >> 54 & 31) == kAddressTableBank) return true;
  }
  return false;
}

struct File {
  std::string bytes;
  std::vector<Elf64_Shdr> sections;
  std::vector<std::string_view> names;  // of sections
  size_t symbols = 0;                   // the section with the symbol table
  size_t address_relocations = 0;
};

bool read_sections(File& file) {
  const Table<Elf64_Ehdr> headers(file.bytes, 0, sizeof(Elf64_Ehdr));
  if (!headers.ok()) return false;
  const Elf64_Ehdr header = headers.get(0);
  const uint32_t device = header.e_flags >> 8 & 255;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_machine != kMachineCuda || header.e_ident[EI_ABIVERSION] != kKnownAbi || device < kFirstDevice ||
      device > kLastDevice || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum)
    return false;
  const Table<Elf64_Shdr> table(file.bytes, header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr));
  if (!table.ok()) return false;
  for (size_t i = 0; i < table.size(); ++i) file.sections.push_back(table.get(i));
  for (size_t i = 0; i < table.size(); ++i) {
    file.names.push_back(text_at(file.bytes, file.sections[header.e_shstrndx], file.sections[i].sh_name));
    if (file.sections[i].sh_type == SHT_SYMTAB) file.symbols = i;
    if (file.names.back() == ".rela.nv.constant4") file.address_relocations = i;
  }
  return file.symbols != 0 && file.address_relocations != 0 &&
         file.sections[file.symbols].sh_link < file.sections.size();
}

/// By symbol: whether it may go. Empty when code reads the table or a section is not as expected.
std::vector<bool> find_unread(File& file) {
  const Elf64_Shdr& table = file.sections[file.symbols];
  const Table<Elf64_Sym> symbols(file.bytes, table.sh_offset, table.sh_size);
  if (!symbols.ok()) return {};
  std::vector<bool> unread(symbols.size());
  for (size_t i = 0; i < symbols.size(); ++i) {
    const Elf64_Sym symbol = symbols.get(i);
    unread[i] = ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && ELF64_ST_BIND(symbol.st_info) == STB_LOCAL &&
                symbol.st_shndx < file.sections.size() && file.names[symbol.st_shndx].starts_with(".nv.global") &&
                is_of_header_library(text_at(file.bytes, file.sections[table.sh_link], symbol.st_name));
  }
  for (size_t i = 0; i < file.sections.size(); ++i) {
    const Elf64_Shdr& section = file.sections[i];
    if ((section.sh_flags & SHF_EXECINSTR) != 0 && reads_address_table(file.bytes, section)) return {};
    if (section.sh_type == SHT_REL && section.sh_size > 0) return {};
    if (section.sh_type != SHT_RELA || i == file.address_relocations) continue;
    const Table<Elf64_Rela> relocations(file.bytes, section.sh_offset, section.sh_size);
    if (!relocations.ok()) return {};
    for (size_t k = 0; k < relocations.size(); ++k) {
      const uint64_t symbol = ELF64_R_SYM(relocations.get(k).r_info);
      if (symbol >= unread.size()) return {};
      unread[symbol] = false;
    }
  }
  return unread;
}

}  // namespace

std::string without_unread_variables(std::string_view cubin) {
  File file{std::string(cubin), {}, {}, 0, 0};
  if (!read_sections(file)) return "";
  const std::vector<bool> unread = find_unread(file);
  size_t count = 0;
  for (const bool each : unread) count += each ? 1 : 0;
  if (count < kWorthwhile) return "";

  const Elf64_Shdr& table = file.sections[file.symbols];
  Table<Elf64_Sym> symbols(file.bytes, table.sh_offset, table.sh_size);
  for (size_t i = 0; i < unread.size(); ++i)
    if (unread[i]) symbols.set(i, Elf64_Sym{});
  Elf64_Shdr& section = file.sections[file.address_relocations];
  Table<Elf64_Rela> relocations(file.bytes, section.sh_offset, section.sh_size);
  if (!relocations.ok()) return "";
  size_t kept = 0;
  for (size_t k = 0; k < relocations.size(); ++k) {
    const Elf64_Rela relocation = relocations.get(k);
    const uint64_t symbol = ELF64_R_SYM(relocation.r_info);
    if (symbol >= unread.size()) return "";
    if (!unread[symbol]) relocations.set(kept++, relocation);
  }
  section.sh_size = kept * sizeof(Elf64_Rela);
  const Elf64_Ehdr header = Table<Elf64_Ehdr>(file.bytes, 0, sizeof(Elf64_Ehdr)).get(0);
  Table<Elf64_Shdr>(file.bytes, header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr))
      .set(file.address_relocations, section);
  return std::move(file.bytes);
}

}  // namespace jitune::gpu
