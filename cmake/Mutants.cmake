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
