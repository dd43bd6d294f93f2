# SPDX-License-Identifier: Apache-2.0
# room(NAME SRC a.c ... USES other rooms LIBS imported targets): a folder, a static library, an
# include prefix and a symbol prefix. USES mirrors ROOMS; tests/laws checks that every #include
# agrees with it.
set_property(GLOBAL PROPERTY SL_ROOMS "")
function(room name)
  cmake_parse_arguments(R "" "" "SRC;USES;LIBS" ${ARGN})
  add_library(${name} STATIC ${R_SRC})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  foreach(use ${R_USES})
    if(EXISTS ${CMAKE_SOURCE_DIR}/src/${use}/CMakeLists.txt)
      target_link_libraries(${name} PUBLIC ${use})
    endif()
  endforeach()
  if(R_LIBS)
    target_link_libraries(${name} PRIVATE ${R_LIBS})
  endif()
  set_property(GLOBAL APPEND PROPERTY SL_ROOMS ${name})
endfunction()

# The files PREFIXNAME.c of a room as rows X(NAME), by name: "ROOM/rows.inc".
function(sl_row_list room prefix)
  set(rows ${ARGN})
  list(SORT rows)
  list(TRANSFORM rows REPLACE "^${prefix}(.*)[.]c$" "X(\\1)\n")
  list(JOIN rows "" rows)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/src/${room}/rows.inc CONTENT "${rows}" @ONLY)
  target_include_directories(${room} PRIVATE ${CMAKE_BINARY_DIR}/src)
endfunction()
