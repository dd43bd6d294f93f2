# SPDX-License-Identifier: Apache-2.0
# The files of the device `vulkan` into SL_VULKAN_SRC: with the headers of Vulkan and
# glslangValidator (Debian: libvulkan-dev, glslang-tools) its driver and, as an array in a header
# each, the SPIR-V of its kernels; else a file that says what is missing. Kernels and run formats
# are the rows of gpu/kernel_list.h and kern/mm_fmt_list.h.
find_path(SL_VULKAN_INCLUDE vulkan/vulkan_core.h)
find_program(SL_GLSLANG glslangValidator)
set(SL_VULKAN_SRC vk/none.c)
if(NOT SL_VULKAN_INCLUDE OR NOT SL_GLSLANG)
  message(STATUS "libvulkan-dev or glslang-tools not found: the device `vulkan` is off")
  return()
endif()
set(SL_VULKAN_SRC gpu/experts.c gpu/kv.c gpu/lacks.c gpu/latents.c
    gpu/log.c gpu/mat.c gpu/mem.c gpu/open.c gpu/ops.c gpu/step.c vk/code.c vk/driver.c
    vk/load.c vk/open.c)
set(sl_shader_dir ${CMAKE_CURRENT_SOURCE_DIR}/vk/shader)
set(sl_spirv_dir ${CMAKE_CURRENT_BINARY_DIR}/spirv)
file(MAKE_DIRECTORY ${sl_spirv_dir})
file(GLOB sl_shader_parts CONFIGURE_DEPENDS ${sl_shader_dir}/*.glsl)
set(sl_spirv_inc "")

# Kernel NAME from FILE.comp with the macros of ARGN.
macro(sl_shader name file)
  add_custom_command(OUTPUT ${sl_spirv_dir}/${name}.h
    COMMAND ${SL_GLSLANG} -V --quiet --target-env vulkan1.2 ${ARGN} --vn dev_vk_spv_${name}
            -o ${sl_spirv_dir}/${name}.h ${sl_shader_dir}/${file}.comp
    DEPENDS ${sl_shader_dir}/${file}.comp ${sl_shader_parts} VERBATIM)
  list(APPEND SL_VULKAN_SRC ${sl_spirv_dir}/${name}.h)
  string(APPEND sl_spirv_inc "#include \"spirv/${name}.h\"\n")
endmacro()

set(sl_kernels ${CMAKE_CURRENT_SOURCE_DIR}/gpu/kernel_list.h)
set(sl_formats ${CMAKE_SOURCE_DIR}/src/kern/mm_fmt_list.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sl_kernels} ${sl_formats})
file(READ ${sl_kernels} text)
string(REGEX MATCHALL "X\\([a-z0-9_]+\\)" rows "${text}")
foreach(row ${rows})
  string(REGEX REPLACE "X\\((.*)\\)" "\\1" name ${row})
  sl_shader(${name} ${name})
endforeach()
file(READ ${sl_formats} text)
string(REGEX MATCHALL "X\\([a-z0-9_]+, +[A-Z0-9_]+, +[0-9][^)]*\\)" rows "${text}")
foreach(row ${rows})
  string(REGEX REPLACE "X\\((.*)\\)" "\\1" row ${row})
  string(REGEX REPLACE ", *" ";" row ${row})
  list(LENGTH row n)
  list(GET row 0 name)
  list(GET row 2 3 size)
  list(GET size 0 blk_k)
  list(GET size 1 blk_bytes)
  set(flags -DBLK_K=${blk_k}u -DBLK_BYTES=${blk_bytes}u)
  if(n EQUAL 4)
    list(APPEND flags -DIS_FLOAT -DF_${name} -DHALF=0 -DMIN=0 -DOFF=0)
  else()
    list(GET row 4 hdr)
    list(GET row 5 grp)
    list(GET row 6 header)
    list(GET row 7 planes)
    list(GET row 8 half)
    list(GET row 9 min)
    list(GET row 10 off)
    list(APPEND flags -DHDR_BYTES=${hdr}u -DGRP_BYTES=${grp}u -DH_${header} -DP_${planes}
         -DHALF=${half} -DMIN=${min} -DOFF=${off})
    sl_shader(mv_${name} mv ${flags})
  endif()
  sl_shader(mf_${name} mf ${flags})
  sl_shader(row_${name} row ${flags})
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/spirv.inc CONTENT "${sl_spirv_inc}" @ONLY)
