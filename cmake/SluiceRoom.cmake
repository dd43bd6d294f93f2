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

# The files NAME.c of a list's rows X(NAME), into out. ARGN: the folder's other files. One that is
# neither stops the configuration, for it would be left out in silence.
function(sl_rows out dir list)
  file(STRINGS ${dir}/${list} rows REGEX "^X\\(")
  list(TRANSFORM rows REPLACE "^X\\(([a-z0-9_]+)\\).*" "\\1.c")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${dir}/${list})
  file(GLOB left CONFIGURE_DEPENDS RELATIVE ${dir} ${dir}/*.c)
  list(REMOVE_ITEM left ${rows} ${ARGN})
  if(left)
    list(JOIN left ", " left)
    message(FATAL_ERROR "${dir}: ${left}: no row X(NAME) of ${list} names it")
  endif()
  set(${out} ${rows} PARENT_SCOPE)
endfunction()
