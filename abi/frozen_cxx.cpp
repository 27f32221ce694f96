// The contract as C++17 sees it: all headers compile without a warning, and the layouts of frozen.c
// and frozen_objects.c hold there too.
#include "abi/frozen.c"
#include "abi/frozen_objects.c"
#include "abi/spec_load.h"

// The inline helpers are used once, so that the compiler looks at their bodies.
spec_status sc_abi_cxx_load(const char *path, spec_plugin *ret_plugin, spec_error *reterr);

spec_status sc_abi_cxx_load(const char *path, spec_plugin *ret_plugin, spec_error *reterr)
{
    spec_status status = spec_load(path, ret_plugin, reterr);
    if (status == SPEC_OK)
        spec_unload(ret_plugin);
    return spec_status_name(status) != nullptr ? status : SPEC_E_INVALID;
}
