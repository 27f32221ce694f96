# What `cmake --install` copies, in two components:
#
#   library    libspec_connector.so.MAJOR.MINOR of the ABI and its links, headers,
#              spec_connector.pc, the CMake package, spec_connector(3)
#   programs   spec-ctl, and with libcmocka spec-conformance; spec-engine; their man pages, and the
#              small models that spec-conformance runs
#
# Both have LICENSE and NOTICES. A Python wheel (python/backend.py, which sets SKBUILD) takes the
# component `wheel` instead: the library beside the package's modules, headers, spec-ctl and
# spec-conformance.
#
# The build tree has one file libspec_connector.so, which hosts name
# by its path. The installed library has a versioned name and two links, as the loader and the
# linker expect.
include(CMakePackageConfigHelpers)
set(SC_LIBRARY_SONAME "libspec_connector.so.${SC_ABI_MAJOR}")
set(SC_LIBRARY_FILE "${SC_LIBRARY_SONAME}.${SC_ABI_MINOR}")
set(SC_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/spec_connector")
set(staged "${CMAKE_BINARY_DIR}/install")
file(MAKE_DIRECTORY "${staged}")

file(CREATE_LINK "${SC_LIBRARY_FILE}" "${staged}/${SC_LIBRARY_SONAME}" SYMBOLIC)
file(CREATE_LINK "${SC_LIBRARY_SONAME}" "${staged}/libspec_connector.so" SYMBOLIC)
install(PROGRAMS "$<TARGET_FILE:spec_connector>" DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        RENAME "${SC_LIBRARY_FILE}" COMPONENT library)
install(FILES "${staged}/${SC_LIBRARY_SONAME}" "${staged}/libspec_connector.so"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library)
install(FILES abi/spec_connector.h abi/spec_load.h abi/spec_objects.h
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT library)
install(FILES docs/man/spec_connector.3 DESTINATION "${CMAKE_INSTALL_MANDIR}/man3"
        COMPONENT library)

# A prefix may be moved: pkg-config and CMake find the files from where the package file is.
set(SC_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(SC_PC_PREFIX "\${pcfiledir}/${up}")
endif()
foreach(dir LIBDIR INCLUDEDIR)
  set(SC_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(SC_PC_${dir} "${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
configure_file(cmake/spec_connector.pc.in "${staged}/spec_connector.pc" @ONLY)
configure_package_config_file(cmake/spec_connectorConfig.cmake.in
                              "${staged}/spec_connectorConfig.cmake"
                              INSTALL_DESTINATION "${SC_PACKAGE_DIR}"
                              PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
# While the ABI is 0.x, another minor version may have other structures.
write_basic_package_version_file("${staged}/spec_connectorConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${staged}/spec_connector.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT library)
install(FILES "${staged}/spec_connectorConfig.cmake" "${staged}/spec_connectorConfigVersion.cmake"
        DESTINATION "${SC_PACKAGE_DIR}" COMPONENT library)

foreach(program spec-ctl spec-engine spec-conformance)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT programs)
    install(FILES docs/man/${program}.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1"
            COMPONENT programs)
  endif()
endforeach()
if(TARGET spec-conformance)
  install(DIRECTORY tests/data/golden
          DESTINATION "${CMAKE_INSTALL_DATADIR}/spec_connector/tests/data" COMPONENT programs)
endif()
foreach(component library programs)
  install(FILES LICENSE NOTICES DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT ${component})
endforeach()

if(SKBUILD)
  install(TARGETS spec_connector LIBRARY DESTINATION . COMPONENT wheel)
  install(FILES abi/spec_connector.h abi/spec_load.h abi/spec_objects.h DESTINATION include
          COMPONENT wheel)
  add_custom_target(wheel_files DEPENDS spec_connector)
  foreach(program spec-ctl spec-conformance)
    if(TARGET ${program})
      install(TARGETS ${program} RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}" COMPONENT wheel)
      add_dependencies(wheel_files ${program})
    endif()
  endforeach()
endif()
