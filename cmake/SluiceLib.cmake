# SPDX-License-Identifier: Apache-2.0
# libsluice, shared and static: all rooms in one, with sl_* as the only names that can be seen;
# pkg-config; installing.
include(GNUInstallDirs)
set(sl_rooms engine model dist arch spec sched kv grammar tok io dev kern par tensor text os base)
set(sl_sys_libs PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::XXHASH Threads::Threads m)

file(WRITE ${CMAKE_BINARY_DIR}/sluice.map "{ global: sl_*; local: *; };\n")
add_library(sluice_shared SHARED ${CMAKE_SOURCE_DIR}/cmake/empty.c)
set_target_properties(sluice_shared PROPERTIES OUTPUT_NAME sluice VERSION ${PROJECT_VERSION}
                      SOVERSION 0
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                      LINK_DEPENDS ${CMAKE_BINARY_DIR}/sluice.map)
target_link_options(sluice_shared PRIVATE -Wl,--version-script=${CMAKE_BINARY_DIR}/sluice.map)
target_link_libraries(sluice_shared PRIVATE -Wl,--whole-archive engine -Wl,--no-whole-archive
                      ${sl_rooms} ${sl_sys_libs})

# Static: one relocatable object of all rooms with every name but sl_* made local.
set(sl_objs)
foreach(r ${sl_rooms})
  list(APPEND sl_objs $<TARGET_FILE:${r}>)
endforeach()
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/libsluice.a
  COMMAND ${CMAKE_LINKER} -r -o sluice_all.o --whole-archive ${sl_objs}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=sl_* sluice_all.o
  COMMAND ${CMAKE_COMMAND} -E rm -f libsluice.a
  COMMAND ${CMAKE_AR} rcs libsluice.a sluice_all.o
  WORKING_DIRECTORY ${CMAKE_BINARY_DIR} DEPENDS ${sl_rooms} VERBATIM)
add_custom_target(sluice_static ALL DEPENDS ${CMAKE_BINARY_DIR}/libsluice.a)

set(sl_pc_private "libpcre2-8 libutf8proc libxxhash")
# Paths from where the file lies: cmake --install --prefix may choose another place than was
# configured.
file(RELATIVE_PATH sl_pc_up ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH sl_pc_lib ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH sl_pc_include ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(${CMAKE_SOURCE_DIR}/cmake/sluice.pc.in ${CMAKE_BINARY_DIR}/sluice.pc @ONLY)

install(TARGETS sluice_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/libsluice.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_SOURCE_DIR}/include/sluice.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/sluice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples
        FILES_MATCHING PATTERN "*.c")
install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice/models
        PATTERN train EXCLUDE)
if(TARGET sluice)
  install(TARGETS sluice RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(NOT CMAKE_CROSSCOMPILING)
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/sluice.1
      COMMAND sh -c "./sluice --man > sluice.1" WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
      DEPENDS sluice VERBATIM)
    add_custom_target(sluice_man ALL DEPENDS ${CMAKE_BINARY_DIR}/sluice.1)
    install(FILES ${CMAKE_BINARY_DIR}/sluice.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endif()
