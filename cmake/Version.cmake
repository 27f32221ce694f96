# One text says which version a file is of: "0.3.0, ABI 0.15, store format 4". The numbers are read
# out of the headers that define them, so that they stand in one place.
function(sc_header_number ret_number header name)
  set_property(DIRECTORY "${CMAKE_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
               "${CMAKE_SOURCE_DIR}/${header}")
  file(STRINGS "${CMAKE_SOURCE_DIR}/${header}" line REGEX "^#define ${name} +[0-9]+u")
  if(NOT line MATCHES "${name} +([0-9]+)u")
    message(FATAL_ERROR "${header} does not define ${name}, expected a number")
  endif()
  set(${ret_number} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

sc_header_number(SC_ABI_MAJOR abi/spec_connector.h SPEC_ABI_MAJOR)
sc_header_number(SC_ABI_MINOR abi/spec_connector.h SPEC_ABI_MINOR)
sc_header_number(SC_STORE_FORMAT store/store.h SC_STORE_FORMAT_VERSION)
set(SC_VERSION_TEXT "${PROJECT_VERSION}, ABI ${SC_ABI_MAJOR}.${SC_ABI_MINOR}")
string(APPEND SC_VERSION_TEXT ", store format ${SC_STORE_FORMAT}")

# These sources of the folder's targets get the text as SC_VERSION_TEXT.
function(sc_tell_version)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS
               "SC_VERSION_TEXT=\"${SC_VERSION_TEXT}\"")
endfunction()
