# Every third-party library of isobar, found here and nowhere else. All are Debian and Ubuntu packages; scripts/install
# names them.

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PNG REQUIRED)

# oneDNN (v2 or v3): GEMM on the CPU. Its CMake package asks for OpenCL's headers; the library itself does not.
find_path(ISOBAR_DNNL_INCLUDE dnnl.hpp REQUIRED)
find_library(ISOBAR_DNNL_LIBRARY dnnl REQUIRED)
add_library(isobar_dnnl INTERFACE)
target_include_directories(isobar_dnnl SYSTEM INTERFACE ${ISOBAR_DNNL_INCLUDE})
target_link_libraries(isobar_dnnl INTERFACE ${ISOBAR_DNNL_LIBRARY})

# yaml-cpp (0.7 or 0.8, whose targets have different names): the tutorial's configs.
find_path(ISOBAR_YAML_INCLUDE yaml-cpp/yaml.h REQUIRED)
find_library(ISOBAR_YAML_LIBRARY yaml-cpp REQUIRED)
add_library(isobar_yaml INTERFACE)
target_include_directories(isobar_yaml SYSTEM INTERFACE ${ISOBAR_YAML_INCLUDE})
target_link_libraries(isobar_yaml INTERFACE ${ISOBAR_YAML_LIBRARY})

# HDF5, linked statically: the shared one drags in curl, krb5 and ldap for a driver that is not used.
# zlib (z) comes with it; data/ calls it as well, for chunks and for gzip.
find_path(ISOBAR_HDF5_INCLUDE hdf5.h PATHS /usr/include/hdf5/serial REQUIRED)
foreach(library hdf5_serial_hl hdf5_serial sz aec z)
  find_library(ISOBAR_${library}_LIBRARY NAMES lib${library}.a lib${library}.so REQUIRED
               PATHS /usr/lib/x86_64-linux-gnu/hdf5/serial)
endforeach()
add_library(isobar_hdf5 INTERFACE)
target_include_directories(isobar_hdf5 SYSTEM INTERFACE ${ISOBAR_HDF5_INCLUDE})
target_compile_definitions(isobar_hdf5 INTERFACE H5_USE_110_API)
# Debian 13's archive has a driver for S3 that wants curl and OpenSSL; with its entry point defined it stays out.
target_link_options(isobar_hdf5 INTERFACE -Wl,--defsym=H5FD_ros3_init=0)
target_link_libraries(isobar_hdf5 INTERFACE ${ISOBAR_hdf5_serial_hl_LIBRARY} ${ISOBAR_hdf5_serial_LIBRARY}
                      ${ISOBAR_sz_LIBRARY} ${ISOBAR_aec_LIBRARY}
                      ${ISOBAR_z_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS} m)

# MPI, for ranks as processes: Open MPI, MPICH, or a cluster's own.
set(ISOBAR_HAS_MPI OFF)
if(NOT ISOBAR_MPI STREQUAL "OFF")
  find_package(MPI COMPONENTS C)
  set(ISOBAR_HAS_MPI ${MPI_C_FOUND})
  if(NOT ISOBAR_HAS_MPI AND NOT ISOBAR_MPI STREQUAL "AUTO")
    message(FATAL_ERROR "isobar: ISOBAR_MPI is ${ISOBAR_MPI}, and no MPI was found")
  endif()
endif()
if(NOT ISOBAR_HAS_MPI)
  message(STATUS "isobar: MPI is off: ranks are threads of one process")
endif()

# What Zarr stores are compressed with, beside zlib. Each is optional: a build without one names it when a store needs
# it.
add_library(isobar_codecs INTERFACE)
set(missing_codecs "")
foreach(codec zstd lz4 blosc)
  string(TOUPPER ${codec} name)
  set(found OFF)
  if(NOT ISOBAR_CODECS STREQUAL "OFF")
    find_path(ISOBAR_${name}_INCLUDE ${codec}.h)
    find_library(ISOBAR_${name}_LIBRARY ${codec})
    if(ISOBAR_${name}_INCLUDE AND ISOBAR_${name}_LIBRARY)
      set(found ON)
      target_include_directories(isobar_codecs SYSTEM INTERFACE ${ISOBAR_${name}_INCLUDE})
      target_link_libraries(isobar_codecs INTERFACE ${ISOBAR_${name}_LIBRARY})
    endif()
  endif()
  target_compile_definitions(isobar_codecs INTERFACE ISOBAR_HAS_${name}=$<BOOL:${found}>)
  if(NOT found)
    list(APPEND missing_codecs ${codec})
  endif()
endforeach()
if(missing_codecs)
  list(JOIN missing_codecs ", " missing_codecs)
  if(ISOBAR_CODECS AND NOT ISOBAR_CODECS STREQUAL "AUTO")
    message(FATAL_ERROR "isobar: ISOBAR_CODECS is ${ISOBAR_CODECS}, and these were not found: ${missing_codecs}")
  endif()
  message(STATUS "isobar: Zarr stores cannot be read where they are compressed with ${missing_codecs}")
endif()

# Where the libraries are built that stand in for NVIDIA's: they are loaded at run time.
set(ISOBAR_STAND_INS ${PROJECT_BINARY_DIR}/lab/stand_ins)
# What .cu files and the host code around them are compiled with and linked to: CUDA, or what stands in for it.
if(ISOBAR_VIRTUAL_GPU)
  set(ISOBAR_CUDA_INCLUDE ${PROJECT_SOURCE_DIR}/lab/stand_ins/cuda/include)
  set(ISOBAR_CUDA_RUNTIME virtual_gpu)
elseif(ISOBAR_HAS_CUDA)
  find_package(CUDAToolkit 12 REQUIRED)
  set(ISOBAR_CUDA_INCLUDE ${CUDAToolkit_INCLUDE_DIRS})
  set(ISOBAR_CUDA_RUNTIME CUDA::cudart_static)
endif()
if(ISOBAR_TESTS)
  find_package(Catch2 REQUIRED)
  include(Catch)
endif()
