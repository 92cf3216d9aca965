#include "pool/fake_cubin.hpp"

#include <elf.h>

#include <array>
#include <cstring>

namespace jitune::test {

std::string fake_cubin(const std::string& symbol) {
  const std::string names = std::string(1, '\0') + symbol + std::string(1, '\0');
  std::array<Elf64_Sym, 2> symbols{};
  symbols[1].st_name = 1;
  symbols[1].st_shndx = 1;
  std::array<Elf64_Shdr, 3> sections{};
  sections[1].sh_type = SHT_SYMTAB;
  sections[1].sh_offset = sizeof(Elf64_Ehdr);
  sections[1].sh_size = sizeof symbols;
  sections[1].sh_link = 2;
  sections[1].sh_entsize = sizeof(Elf64_Sym);
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = sections[1].sh_offset + sections[1].sh_size;
  sections[2].sh_size = names.size();
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = 190;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = sections.size();
  header.e_shoff = sections[2].sh_offset + names.size();
  const auto bytes = [](const auto& value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  return bytes(header) + bytes(symbols) + names + bytes(sections);
}

}  // namespace jitune::test
