# SPDX-License-Identifier: Apache-2.0
# Compiler flags for everything, and per ISA for kernel files (the file's suffix selects them).
include(CheckCCompilerFlag)

add_compile_definitions(_GNU_SOURCE)
add_compile_options(
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith
  -Werror=implicit-function-declaration -Werror=incompatible-pointer-types -Werror=int-conversion
  -fno-math-errno -ffp-contract=off -fno-strict-aliasing)
if(SL_WERROR)
  add_compile_options(-Werror)
endif()

if(SL_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
  if(NOT SL_FUZZ_CMP) # most of what it costs are UBSan's own comparisons
    add_compile_options(-fno-sanitize-coverage=trace-cmp,stack-depth)
  endif()
  add_compile_definitions(TEXT_TMPL_STEPS=2000)
endif()

set(CMAKE_C_FLAGS_RELEASE "-O3 -g1")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g -DSL_DEBUG")
string(CONCAT CMAKE_C_FLAGS_ASAN "-O1 -g1 -DSL_DEBUG -fsanitize=address,undefined "
       "-fno-sanitize-recover=all -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_TSAN "-O1 -g -DSL_DEBUG -fsanitize=thread -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_COV "-O0 -g --coverage")
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # Hardening (docs/reliability.md S5): PIE, full RELRO, NX, canaries, FORTIFY, stack clash, CET.
  add_compile_options(-fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE
                      -D_FORTIFY_SOURCE=2)
  check_c_compiler_flag(-fcf-protection SL_HAVE_CET)
  if(SL_HAVE_CET AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    add_compile_options(-fcf-protection)
    # Debian's crt1.o carries no CET note, so the linker would drop ours. Shadow stacks need nothing
    # of it; for IBT its _init lacks the landing pad, so the program is compiled for IBT but not
    # marked.
    add_link_options(-Wl,-z,shstk)
  endif()
  add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
endif()
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

set(isa_flags_ref "")
set(isa_flags_avx2 -mavx2 -mfma -mf16c)
set(isa_flags_avxvnni ${isa_flags_avx2} -mavxvnni)
set(isa_flags_avx512 ${isa_flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq
    -mprefer-vector-width=512)
set(isa_flags_vnni256 ${isa_flags_avx512} -mavx512vnni)
set(isa_flags_avx512vnni ${isa_flags_avx512} -mavx512vnni -mavx512vbmi)
set(isa_flags_avx512bf16 ${isa_flags_avx512vnni} -mavx512bf16)
set(isa_flags_neon -march=armv8.2-a+dotprod+fp16)
set(isa_flags_i8mm -march=armv8.2-a+dotprod+fp16+i8mm+bf16)

# Give each kernel file the flags of its suffix; an unknown suffix is an error.
function(sl_isa_flags)
  foreach(src ${ARGN})
    get_filename_component(stem ${src} NAME_WE)
    string(REGEX REPLACE "^.*_" "" isa ${stem})
    if(NOT DEFINED isa_flags_${isa})
      message(FATAL_ERROR "${src}: no flags for ISA '${isa}' (cmake/SluiceFlags.cmake)")
    endif()
    set_source_files_properties(${src} PROPERTIES COMPILE_OPTIONS "${isa_flags_${isa}}")
  endforeach()
endfunction()
