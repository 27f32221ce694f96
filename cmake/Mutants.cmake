# sc_mutate(PATCH SOURCE MADE): what conformance/broken/mutate.py makes of the file that a patch
# changes. SOURCE: variable for that file's path in the tree. MADE: for where its changed copy is
# made. The configuration is made anew where the patch changes.
find_program(SC_PYTHON3 python3)
function(sc_mutate patch ret_source ret_made)
  set(mutate "${CMAKE_SOURCE_DIR}/conformance/broken/mutate.py")
  get_filename_component(name "${patch}" NAME_WE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${patch}")
  file(STRINGS "${patch}" target_line REGEX "^\\+\\+\\+ b/")
  string(REGEX REPLACE "^\\+\\+\\+ b/([^ \t]+).*$" "\\1" source "${target_line}")
  string(REPLACE "/" "_" flat "${source}")
  set(made "${CMAKE_CURRENT_BINARY_DIR}/${name}-${flat}")
  add_custom_command(OUTPUT "${made}"
                     COMMAND "${SC_PYTHON3}" "${mutate}" "${patch}" "${CMAKE_SOURCE_DIR}/${source}"
                             "${made}"
                     DEPENDS "${patch}" "${mutate}" "${CMAKE_SOURCE_DIR}/${source}" VERBATIM)
  set(${ret_source} "${source}" PARENT_SCOPE)
  set(${ret_made} "${made}" PARENT_SCOPE)
endfunction()

# sc_compile_once(TARGET SOURCES source .. LINKS library ..): objects that several mutants link, and
# none of them changes.
function(sc_compile_once target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  if(NOT TARGET ${target})
    add_library(${target} OBJECT ${ARG_SOURCES})
    sc_target_defaults(${target})
    target_link_libraries(${target} PRIVATE ${ARG_LINKS})
  endif()
endfunction()

# sc_mutant_defaults(TARGET): sc_target_defaults, without what only a debugger reads: there are
# hundreds, and most of the time that one takes was copying that.
function(sc_mutant_defaults target)
  sc_target_defaults(${target})
  target_compile_options(${target} PRIVATE -g0)
  target_link_options(${target} PRIVATE -Wl,-S)
endfunction()
