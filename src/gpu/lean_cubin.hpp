#pragma once

#include <string>
#include <string_view>

namespace jitune::gpu {

/// A copy of `cubin` without the header libraries' variables that no instruction reads, or "" where there are few of
/// them or anything about the file is not as expected: then `cubin` is to be loaded as it is.
///
/// NVRTC keeps every constant of CCCL's headers (`integral_constant<...>::value` and the like) as a variable of the
/// module: a kernel that includes cub has some 1,200, each with a symbol and a relocation in the table of addresses
/// (constant bank 4), and the driver looks at each of them when it loads the module. Dropped are symbols of cuda::,
/// cub::, thrust:: and CCCL's own that are local to the module, named by no relocation but the table's, in files whose
/// code does not touch the table. Nothing is moved: their entries become null symbols and the table's relocations go.
///
/// Which instructions touch constant bank 4 is told by their encoding (16 bytes; bits 9 to 11 are 3 or 5 for constant
/// operands, bits 54 to 58 the bank), as ptxas 13.0 writes it for sm_75 to sm_121; for other devices nothing is done.
std::string without_unread_variables(std::string_view cubin);

}  // namespace jitune::gpu
