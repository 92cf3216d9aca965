#include "fake_cuda/cubin.hpp"

#include <elf.h>

#include <cstring>

namespace fake_cuda {
namespace {

template <class T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

Elf64_Shdr section(Elf64_Word type, size_t offset, size_t bytes) {
  Elf64_Shdr header{};
  header.sh_type = type;
  header.sh_offset = offset;
  header.sh_size = bytes;
  header.sh_addralign = 1;
  return header;
}

}  // namespace

std::string make_cubin(const std::vector<std::string>& functions,
                       const std::vector<std::pair<std::string, size_t>>& variables) {
  std::string names(1, '\0');
  std::string symbols;
  append(symbols, Elf64_Sym{});
  const auto add = [&](const std::string& name, unsigned char type, size_t bytes) {
    Elf64_Sym symbol{};
    symbol.st_name = static_cast<Elf64_Word>(names.size());
    symbol.st_info = static_cast<unsigned char>(ELF64_ST_INFO(STB_GLOBAL, type));
    symbol.st_shndx = 1;
    symbol.st_size = bytes;
    append(symbols, symbol);
    names += name;
    names += '\0';
  };
  for (const std::string& name : functions) add(name, STT_FUNC, 128);
  for (const auto& [name, bytes] : variables) add(name, STT_OBJECT, bytes);

  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC;
  header.e_machine = 190;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 4;
  header.e_shstrndx = 3;
  header.e_shoff = sizeof header + symbols.size() + names.size();

  std::string image;
  append(image, header);
  image += symbols;
  image += names;
  append(image, Elf64_Shdr{});
  append(image, section(SHT_NOBITS, 0, 0));
  Elf64_Shdr table = section(SHT_SYMTAB, sizeof header, symbols.size());
  table.sh_link = 3;
  table.sh_entsize = sizeof(Elf64_Sym);
  table.sh_info = 1;
  append(image, table);
  append(image, section(SHT_STRTAB, sizeof header + symbols.size(), names.size()));
  return image;
}

std::string utility_cubin() {
  return make_cubin({"jitune_fill", "jitune_compare", "jitune_unwritten", "jitune_guards", "jitune_checksum",
                     "jitune_decode", "jitune_spin", "jitune_clock"});
}

}  // namespace fake_cuda
