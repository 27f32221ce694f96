/* A plugin of another minor version: all that a host may see of it is its version. */
#include "abi/spec_connector.h"

static const struct spec_api API = {
    .struct_size = sizeof(struct spec_api), .major = SPEC_ABI_MAJOR, .minor = SPEC_ABI_MINOR + 1};

const struct spec_api *spec_connector_api(uint32_t major)
{
    return major == SPEC_ABI_MAJOR ? &API : NULL;
}
