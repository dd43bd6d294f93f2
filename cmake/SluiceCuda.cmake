# SPDX-License-Identifier: Apache-2.0
# The files of the device `cuda` into SL_CUDA_SRC: with a clang that makes PTX (Debian: clang;
# nothing of NVIDIA's is needed) its driver and the PTX of its kernels, which the card's driver
# assembles; else a file that says what is missing.
find_program(SL_CLANG NAMES clang clang-22 clang-21 clang-20 clang-19 clang-18 clang-17 clang-16
             clang-15 clang-14)
set(SL_CUDA_SRC cuda/none.c)
set(SL_HAVE_CUDA OFF CACHE INTERNAL "the device is built")
# The least card (CUDA_LEAST of src/dev/cuda/cuda.h) and PTX that drivers of 2018 know; of matrix
# units CUDA_UNITS, and drivers of 2020.
set(sl_ptx_flags -x cuda --cuda-device-only --cuda-path=/none -nocudainc -nocudalib -O3
    -ffp-contract=off -fno-math-errno -Wall -Werror -Wno-unused-variable -S
    -I${CMAKE_SOURCE_DIR}/src)
set(sl_ptx_any --cuda-gpu-arch=sm_61 -Xclang -target-feature -Xclang +ptx63)
set(sl_ptx_units --cuda-gpu-arch=sm_80 -Xclang -target-feature -Xclang +ptx70)
set(sl_entry ${CMAKE_SOURCE_DIR}/src/dev/gpu/kernel/entry.cu)
set(sl_ptx_dir ${CMAKE_CURRENT_BINARY_DIR}/ptx)
file(MAKE_DIRECTORY ${sl_ptx_dir})
# PTX of a kernel, as a command.
function(sl_ptx_command out name)
  set(card ${sl_ptx_any})
  if(name MATCHES "^cm_")
    set(card ${sl_ptx_units})
  endif()
  set(${out} ${SL_CLANG} ${sl_ptx_flags} ${card} ${SL_FLAGS_${name}} -DENTRY=${name}
      -DBODY_FILE="dev/gpu/kernel/${SL_BODY_${name}}.inc" -o ${sl_ptx_dir}/${name}.ptx
      ${sl_entry} PARENT_SCOPE)
endfunction()
if(SL_CLANG)
  sl_ptx_command(command selftest)
  execute_process(COMMAND ${command} RESULT_VARIABLE sl_no_ptx ERROR_VARIABLE sl_why OUTPUT_QUIET)
endif()
if(NOT SL_CLANG OR sl_no_ptx)
  message(STATUS "no clang that makes PTX found: the device `cuda` is off")
  return()
endif()
set(SL_CUDA_SRC cuda/code.c cuda/driver.c cuda/load.c)
set(SL_HAVE_CUDA ON CACHE INTERNAL "the device is built")
set(sl_ptx_inc "")
set(sl_ptx_made OFF)
if(SL_MADE AND EXISTS ${SL_MADE}/src/dev/ptx.inc)
  set(sl_ptx_made ON)
  set(sl_ptx_dir ${SL_MADE}/src/dev/ptx)
endif()
foreach(name ${SL_KERNELS})
  if(NOT sl_ptx_made)
    sl_ptx_command(command ${name})
    add_custom_command(OUTPUT ${sl_ptx_dir}/${name}.ptx COMMAND ${command}
      DEPENDS ${SL_KERNEL_FILES} VERBATIM)
  endif()
  list(APPEND SL_CUDA_SRC ${sl_ptx_dir}/${name}.ptx)
  string(APPEND sl_ptx_inc "CUDA_PTX(${name}, \"${sl_ptx_dir}/${name}.ptx\")\n")
  set_property(SOURCE cuda/code.c APPEND PROPERTY OBJECT_DEPENDS ${sl_ptx_dir}/${name}.ptx)
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/ptx.inc CONTENT "${sl_ptx_inc}" @ONLY)
