# What a build can be told, and the flags every target gets.

set(ISOBAR_CUDA AUTO CACHE STRING
    "CUDA kernels: AUTO (on when nvcc is found), ON, OFF, VIRTUAL (lab/stand_ins/cuda in place of CUDA)")
set(ISOBAR_MPI AUTO CACHE STRING "Ranks as processes, over MPI: AUTO (on when it is found), ON, OFF")
set(ISOBAR_CODECS AUTO CACHE STRING
    "zstd, lz4 and blosc, with which Zarr stores are compressed: AUTO (each that is found), ON (all), OFF")
option(ISOBAR_EMULATOR "Build the CUDA kernels for the CPU emulator too (tests, --device emulator)" ON)
option(ISOBAR_TESTS "Build the tests" ON)
option(ISOBAR_FUZZ "Link libFuzzer into tests/fuzz; needs clang" OFF)
option(ISOBAR_WERROR "Treat warnings as errors" ON)
option(ISOBAR_JOIN "Compile several files at once: half the time from cold, but all of them for a change in one" ON)
set(ISOBAR_SANITIZE "" CACHE STRING "Sanitizers: empty, address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")

find_program(ISOBAR_CCACHE ccache)
if(ISOBAR_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ISOBAR_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${ISOBAR_CCACHE})
endif()

# A tree that can be moved: libraries are found from where the binary lies.
set(CMAKE_INSTALL_LIBDIR lib)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH OFF)
add_link_options(-Wl,--as-needed -Wl,--disable-new-dtags)  # DT_RPATH, which the bundled libraries' own needs follow too

set(ISOBAR_VIRTUAL_GPU OFF)
if(ISOBAR_CUDA STREQUAL "VIRTUAL")
  set(ISOBAR_VIRTUAL_GPU ON)
  set(ISOBAR_HAS_CUDA ON)
  message(STATUS "isobar: device cuda is a stand-in for tests, on the CPU")
elseif(ISOBAR_CUDA)  # AUTO, ON
  include(find_nvcc)
  if(NOT CMAKE_CUDA_COMPILER)  # what an earlier configuration did not find, this one looks for again
    unset(CMAKE_CUDA_COMPILER CACHE)
    isobar_find_nvcc(nvcc)
    if(nvcc)
      set(ENV{CUDACXX} ${nvcc})
    endif()
  endif()
  set(ISOBAR_HAS_CUDA ON)
  if(ISOBAR_CUDA STREQUAL "AUTO")
    include(CheckLanguage)
    check_language(CUDA)
    set(ISOBAR_HAS_CUDA ${CMAKE_CUDA_COMPILER})
  endif()
else()
  set(ISOBAR_HAS_CUDA OFF)
endif()
if(ISOBAR_HAS_CUDA AND NOT ISOBAR_VIRTUAL_GPU)
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # isobar_compile_for_cuda says which
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  # CMake 3.25 does not know nvcc's C++20 flag.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  message(STATUS "isobar: CUDA is on (${CMAKE_CUDA_COMPILER}), for sm_80 and sm_90")
  # What ptxas does to a kernel and calls no error is one here.
  find_program(ISOBAR_PYTHON python3)
  if(ISOBAR_PYTHON)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${ISOBAR_PYTHON} ${PROJECT_SOURCE_DIR}/tools/checked_nvcc.py
        ${CMAKE_CUDA_COMPILER_LAUNCHER})
  else()
    message(STATUS "isobar: no python3: nobody checks what ptxas made of the kernels (tools/checked_nvcc.py)")
  endif()
elseif(NOT ISOBAR_HAS_CUDA)
  set(why "no nvcc in $CUDACXX, $CUDA_HOME, PATH and /usr/local/cuda")
  if(nvcc)
    set(why "${nvcc} cannot compile here: CMakeFiles/CheckCUDA/ in the build folder says why")
  elseif(NOT ISOBAR_CUDA)
    set(why "ISOBAR_CUDA is ${ISOBAR_CUDA}")
  endif()
  message(STATUS "isobar: CUDA is off (${why}): this build trains on the CPU")
  if(ISOBAR_CUDA)
    isobar_see_gpu(has_gpu /dev)
    if(has_gpu)
      message(WARNING "isobar: this machine has an NVIDIA GPU, which this build does not use: install the CUDA Toolkit "
                      "(12 or 13), or say where its nvcc is: CUDACXX=FOLDER/bin/nvcc cmake --preset release")
    endif()
  endif()
endif()

# Flags of isobar's own code, kept off third-party targets.
add_library(isobar_flags INTERFACE)
target_include_directories(isobar_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(isobar_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic>)
# GCC 13 and 14 warn wherever a function takes a temporary and returns a reference to something else.
target_compile_options(isobar_flags INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>>:-Wno-dangling-reference>)
if(ISOBAR_WERROR)
  target_compile_options(isobar_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
target_compile_options(isobar_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-lineinfo;-Xcompiler=-Wall>)
# No kernel spills registers with the compiler of docs/kernel_report.md. Older ones keep fewer values in them: ptxas of
# CUDA 12.4 spills 24 bytes of one kernel, which is slower by that and right.
target_compile_options(isobar_flags INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<VERSION_GREATER_EQUAL:$<CUDA_COMPILER_VERSION>,13>>:-Xptxas=--warn-on-spills>)
target_compile_definitions(isobar_flags INTERFACE ISOBAR_HAS_CUDA=$<BOOL:${ISOBAR_HAS_CUDA}>
                                                  ISOBAR_HAS_EMULATOR=$<BOOL:${ISOBAR_EMULATOR}>)

# Sanitizers judge isobar itself. What they need not see (most tests, kernels of other instruction sets) is compiled
# exactly as in a plain build, and so comes from the compiler cache. Kernels are optimised, or their tests would take
# long; the rest is not, since it takes longer to compile than to run.
if(ISOBAR_SANITIZE)
  # g++ sees uninitialised members in its own <regex> where a sanitizer's checks stand between.
  set(ISOBAR_SANITIZE_FLAGS -fsanitize=${ISOBAR_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined
      -Wno-maybe-uninitialized)
  # Four checks of undefined behaviour look at every pointer, a quarter of the time to compile. What they are for,
  # AddressSanitizer meets at the access itself.
  if(ISOBAR_SANITIZE MATCHES "address")
    list(APPEND ISOBAR_SANITIZE_FLAGS -fno-sanitize=null,vptr,object-size,pointer-overflow)
  endif()
  target_link_options(isobar_flags INTERFACE -fsanitize=${ISOBAR_SANITIZE})
endif()
if(ISOBAR_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ISOBAR_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang")
  endif()
  set(ISOBAR_SANITIZE_FLAGS -fsanitize=fuzzer-no-link,${ISOBAR_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=undefined)
endif()
# The CPU kernels they look at: of one instruction set, which every machine has. ThreadSanitizer does not know OpenMP's
# barriers and would report the right as wrong: its tests run with one thread of OpenMP, and it sees the races of ranks.
set(ISOBAR_SANITIZED_ISA "")
if(ISOBAR_SANITIZE)
  set(ISOBAR_SANITIZED_ISA avx2)
endif()
# The counter of memory accesses has ThreadSanitizer's functions as g++ calls them (lab/accesses).
set(ISOBAR_COUNTS_ACCESSES OFF)
if(ISOBAR_EMULATOR AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT ISOBAR_SANITIZE AND NOT ISOBAR_VIRTUAL_GPU)
  set(ISOBAR_COUNTS_ACCESSES ON)
endif()
# To be called after the target's other options.
function(isobar_sanitize target level)
  if(ISOBAR_SANITIZE)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${ISOBAR_SANITIZE_FLAGS};${level}>")
  endif()
endfunction()

# For a library or program above the kernels. So many of its files are compiled at once: what they include is compiled
# once for all of them, and that is most of the work. No two of them may therefore use one name for two things in their
# unnamed namespaces. A sanitizer's checks are compiled slowest, so there are twice as many of them then.
function(isobar_join target files)
  if(NOT ISOBAR_JOIN)
    return()
  endif()
  if(ISOBAR_SANITIZE)
    math(EXPR files "2 * ${files}")
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  # GCC takes every unnamed namespace of a file that is included for one of a header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# For test programs: as isobar_join, with a sanitizer too, but for files of one folder, so that a new test does not join
# files of other folders anew, where two names might meet.
function(isobar_join_tests target files)
  isobar_join(${target} ${files})
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    string(REPLACE ${CMAKE_CURRENT_SOURCE_DIR}/ "" path ${source})
    string(REGEX MATCH "^[a-z]+" folder ${path})
    list(APPEND files_of_${folder} ${source})
    list(LENGTH files_of_${folder} count)
    math(EXPR group "(${count} - 1) / ${files}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()

# For emulated kernels whose memory accesses are counted: each calls a function of ThreadSanitizer's names, which
# lab/accesses/counter.cc has. To be called after the target's other options.
function(isobar_count_accesses target)
  target_compile_definitions(${target} PRIVATE ISOBAR_EMULATE ISOBAR_COUNT_ACCESSES)
  target_compile_options(${target} PRIVATE -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -O1
                         -Wno-unknown-pragmas)
endfunction()

# Compiles .cu files of a target into namespace cuda: by nvcc, or by the host compiler for the virtual GPU. They lie in
# the folder of the caller.
function(isobar_compile_for_cuda target)
  target_include_directories(${target} SYSTEM PRIVATE ${ISOBAR_CUDA_INCLUDE})
  if(ISOBAR_VIRTUAL_GPU)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
    target_compile_definitions(${target} PRIVATE ISOBAR_EMULATE ISOBAR_VIRTUAL_GPU)
    target_compile_options(${target} PRIVATE -Wno-unknown-pragmas)  # #pragma unroll
    target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
    isobar_sanitize(${target} -O1)
    return()
  endif()
  # Unless the target names its GPU: code for sm_80 and sm_90, and PTX of 80, which drivers compile for later GPUs. All
  # from the same PTX: the front end, which takes most of the time, goes over a file once.
  get_target_property(architectures ${target} CUDA_ARCHITECTURES)
  if(NOT architectures)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:--generate-code=arch=compute_80,code=[compute_80,sm_80,sm_90]>")
  endif()
endfunction()
