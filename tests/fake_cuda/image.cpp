#include <cxxabi.h>
#include <elf.h>

#include <cstdlib>
#include <cstring>

#include "state.hpp"

namespace fake_cuda {
namespace {

constexpr uint16_t kMachineCuda = 190;

template <class T>
T read(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

bool read_image(const void* image, std::vector<ImageSymbol>& symbols) {
  const char* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0 || bytes[EI_CLASS] != ELFCLASS64) return false;
  const auto header = read<Elf64_Ehdr>(bytes);
  if (header.e_machine != kMachineCuda) return false;
  const auto section = [&](size_t index) {
    return read<Elf64_Shdr>(bytes + header.e_shoff + index * header.e_shentsize);
  };
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    const char* names = bytes + section(table.sh_link).sh_offset;
    for (size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read<Elf64_Sym>(bytes + table.sh_offset + at);
      const auto type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_OBJECT)) continue;
      symbols.push_back({names + symbol.st_name, type == STT_FUNC, symbol.st_size});
    }
  }
  return true;
}

std::string demangle(const std::string& symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : symbol;
  std::free(text);
  // Templates come with their return type, which is void for every kernel.
  if (name.rfind("void ", 0) == 0) name.erase(0, 5);
  return name;
}

}  // namespace fake_cuda
