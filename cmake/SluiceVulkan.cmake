# SPDX-License-Identifier: Apache-2.0
# The files of the device `vulkan` into SL_VULKAN_SRC: with the headers of Vulkan and
# glslangValidator (Debian: libvulkan-dev, glslang-tools) its driver and, as an array in a header
# each, the SPIR-V of its kernels; else a file that says what is missing.
find_path(SL_VULKAN_INCLUDE vulkan/vulkan_core.h)
find_program(SL_GLSLANG glslangValidator)
set(SL_VULKAN_SRC vk/none.c)
if(NOT SL_VULKAN_INCLUDE OR NOT SL_GLSLANG)
  message(STATUS "libvulkan-dev or glslang-tools not found: the device `vulkan` is off")
  return()
endif()
set(SL_VULKAN_SRC vk/code.c vk/driver.c vk/load.c vk/open.c vk/units.c)
set(sl_spirv_dir ${CMAKE_CURRENT_BINARY_DIR}/spirv)
file(MAKE_DIRECTORY ${sl_spirv_dir})
# Matrix units need glslang 13: Debian 12 has 12.
set(sl_vk_units 0)
file(CONFIGURE OUTPUT ${sl_spirv_dir}/units.comp @ONLY CONTENT
"#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
void main() {}
")
execute_process(COMMAND ${SL_GLSLANG} -V --quiet --target-env vulkan1.2 -o ${sl_spirv_dir}/units.spv
                        ${sl_spirv_dir}/units.comp
                RESULT_VARIABLE sl_no_units OUTPUT_QUIET ERROR_QUIET)
if(sl_no_units)
  message(STATUS "glslang before 13: the device `vulkan` multiplies without matrix units")
else()
  set(sl_vk_units 1)
endif()
set(sl_spirv_inc "#define DEV_VK_UNITS ${sl_vk_units}\n")
set(sl_spirv_made OFF)
if(SL_MADE AND EXISTS ${SL_MADE}/src/dev/spirv.inc)
  set(sl_spirv_made ON)
  set(sl_spirv_dir ${SL_MADE}/src/dev/spirv)
endif()
foreach(name ${SL_KERNELS})
  if(name MATCHES "^cm_" AND NOT sl_vk_units)
    continue()
  endif()
  if(NOT sl_spirv_made)
    set(sl_shader "#version 460\n#extension GL_GOOGLE_include_directive : require\n")
    foreach(part glsl arith ${SL_BODY_${name}})
      string(APPEND sl_shader "#include \"dev/gpu/kernel/${part}.inc\"\n")
    endforeach()
    file(CONFIGURE OUTPUT ${sl_spirv_dir}/${name}.comp CONTENT "${sl_shader}" @ONLY)
    add_custom_command(OUTPUT ${sl_spirv_dir}/${name}.h
      COMMAND ${SL_GLSLANG} -V --quiet --target-env vulkan1.2 -I${CMAKE_SOURCE_DIR}/src
              ${SL_FLAGS_${name}} --vn dev_vk_spv_${name} -o ${sl_spirv_dir}/${name}.h
              ${sl_spirv_dir}/${name}.comp
      DEPENDS ${sl_spirv_dir}/${name}.comp ${SL_KERNEL_FILES} VERBATIM)
  endif()
  list(APPEND SL_VULKAN_SRC ${sl_spirv_dir}/${name}.h)
  string(APPEND sl_spirv_inc "#include \"${sl_spirv_dir}/${name}.h\"\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/spirv.inc CONTENT "${sl_spirv_inc}" @ONLY)
