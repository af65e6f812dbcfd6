# Finds nvcc and the CUDA runtime. nvcc is looked for on the PATH, in CUDACXX and where CUDA's packages put it.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(HALFBYTE_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(NOT HALFBYTE_NVCC)
    message(FATAL_ERROR "HALFBYTE_CUDA needs nvcc 12.8 to 13.x; install CUDA's toolkit, or set CUDACXX to its nvcc")
  endif()
  set(CMAKE_CUDA_COMPILER ${HALFBYTE_NVCC})
endif()
# Each target says for itself; this only stops CMake from asking a GPU.
set(CMAKE_CUDA_ARCHITECTURES OFF)
if(HALFBYTE_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${HALFBYTE_CCACHE})
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
  message(FATAL_ERROR "HALFBYTE_CUDA needs nvcc 12.8 to 13.x, found ${CMAKE_CUDA_COMPILER_VERSION}")
endif()
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know yet that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit REQUIRED)
# 90a is what runs (usable_device refuses others); 100a and 120a are compiled where asked for. Older ones have no bulk copies
# and no clusters.
foreach(arch IN LISTS HALFBYTE_CUDA_ARCHITECTURES)
  if(NOT arch MATCHES "^(90a|100a|120a)(-real|-virtual)?$")
    message(FATAL_ERROR "HALFBYTE_CUDA_ARCHITECTURES has '${arch}', expected 90a, 100a or 120a; the kernels use bulk copies and clusters, which devices before 9.0 have not")
  endif()
endforeach()
