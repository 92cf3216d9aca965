# How jitune finds what it is built with. Nothing here is downloaded: scripts/setup does that, and says so first.
# A project that has jitune as a subdirectory links the static library, and so what that is linked with.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Threads REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
find_package(SQLite3 3.37 REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)

# What a program with all rooms in it links against.
if(JITUNE_PORTABLE)
  find_library(JITUNE_SQLITE_STATIC libsqlite3.a REQUIRED)
  find_library(JITUNE_CRYPTO_STATIC libcrypto.a REQUIRED)
  set(JITUNE_SYSTEM_LIBRARIES Threads::Threads ${CMAKE_DL_LIBS} ${JITUNE_SQLITE_STATIC} ${JITUNE_CRYPTO_STATIC} m)
else()
  set(JITUNE_SYSTEM_LIBRARIES Threads::Threads ${CMAKE_DL_LIBS} SQLite::SQLite3 OpenSSL::Crypto)
endif()

# Headers that scripts/setup unpacked, when the system's own are missing or too old.
set(JITUNE_DEPS_DIR "${PROJECT_SOURCE_DIR}/.deps" CACHE PATH "Where scripts/setup puts headers it unpacks")

# Boost.Process v2 came with 1.80 and is usable from 1.81 on; only headers are used.
find_path(JITUNE_BOOST_INCLUDE_DIR boost/process/v2/process.hpp
  HINTS "${JITUNE_DEPS_DIR}/boost/usr/include" ENV BOOST_ROOT PATH_SUFFIXES include)
if(NOT JITUNE_BOOST_INCLUDE_DIR)
  message(FATAL_ERROR "Boost 1.81 or newer was not found (boost/process/v2/process.hpp). "
    "Run scripts/setup, install libboost1.81-dev or newer, or set JITUNE_BOOST_INCLUDE_DIR.")
endif()
add_library(jitune_boost INTERFACE)
target_include_directories(jitune_boost SYSTEM INTERFACE ${JITUNE_BOOST_INCLUDE_DIR})

# CUDA headers only: the driver and NVRTC are loaded at run time.
file(GLOB JITUNE_CUDA_INSTALLS /usr/local/cuda-1[2-9]*)
find_path(JITUNE_CUDA_INCLUDE_DIR NAMES nvrtc.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda ${JITUNE_CUDA_INSTALLS} "${JITUNE_DEPS_DIR}/cuda"
  PATH_SUFFIXES include targets/${CMAKE_SYSTEM_PROCESSOR}-linux/include)
if(NOT JITUNE_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "The CUDA headers were not found (cuda.h, nvrtc.h). "
    "Run scripts/setup, install the CUDA Toolkit 12 or 13, or set JITUNE_CUDA_INCLUDE_DIR.")
endif()
file(STRINGS ${JITUNE_CUDA_INCLUDE_DIR}/cuda.h JITUNE_CUDA_VERSION REGEX "^#define CUDA_VERSION +[0-9]+")
string(REGEX MATCH "[0-9]+$" JITUNE_CUDA_VERSION "${JITUNE_CUDA_VERSION}")
if(NOT JITUNE_CUDA_VERSION GREATER_EQUAL 12000)
  message(FATAL_ERROR "The CUDA headers in ${JITUNE_CUDA_INCLUDE_DIR} are of version ${JITUNE_CUDA_VERSION}; 12000 (CUDA 12) or "
    "newer is needed. Set JITUNE_CUDA_INCLUDE_DIR, or run scripts/setup.")
endif()
add_library(jitune_cuda_headers INTERFACE)
target_include_directories(jitune_cuda_headers SYSTEM INTERFACE ${JITUNE_CUDA_INCLUDE_DIR})

find_path(JITUNE_TOMLPP_INCLUDE_DIR toml++/toml.h REQUIRED)
add_library(jitune_tomlpp INTERFACE)
target_include_directories(jitune_tomlpp SYSTEM INTERFACE ${JITUNE_TOMLPP_INCLUDE_DIR})

if(JITUNE_BUILD_APPS)
  find_package(CLI11 REQUIRED)
  if(JITUNE_PORTABLE)
    find_library(JITUNE_ZLIB libz.a REQUIRED)
  else()
    find_package(ZLIB REQUIRED)
    set(JITUNE_ZLIB ZLIB::ZLIB)
  endif()
endif()
if(JITUNE_BUILD_TESTS)
  find_path(JITUNE_DOCTEST_INCLUDE_DIR doctest/doctest.h REQUIRED)
  add_library(jitune_doctest INTERFACE)
  target_include_directories(jitune_doctest SYSTEM INTERFACE ${JITUNE_DOCTEST_INCLUDE_DIR})
endif()
