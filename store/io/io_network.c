/* io_network: the file system types that may not forward locks between hosts.
 * From statfs(2) and linux/magic.h; not those with cluster-wide locks (GFS2, OCFS2). Mount options
 * (nolock, local_lock) cannot be queried.
 * Tests: tests/unit/store/test_io_network.c */
#include "store/io/io_posix.h"

#include <errno.h>
#include <sys/vfs.h>

static const struct {
    uint32_t type;
    const char *name;
} networks[] = {
    {0x00006969u, "NFS"},     {0x0000517Bu, "SMB"},
    {0xFF534D42u, "CIFS"},    {0xFE534D42u, "SMB2"},
    {0x65735546u, "FUSE"},    {0x01021997u, "9P"},
    {0x00C36400u, "Ceph"},    {0x0BD00BD0u, "Lustre"},
    {0x47504653u, "GPFS"},    {0x5346414Fu, "AFS"},
    {0x6B414653u, "AFS"},     {0x73757245u, "Coda"},
    {0x19830326u, "BeeGFS"},  {0xAAD7AAEAu, "PanFS"},
    {0x0000564Cu, "NetWare"}, {0x786F4256u, "a VirtualBox shared folder"},
};

int sc_io_posix_fs_type(const char *path, uint32_t *ret_type)
{
    struct statfs about;
    int result;
    do {
        result = statfs(path, &about);
    } while (result != 0 && errno == EINTR);
    if (result != 0)
        return errno;
    *ret_type = (uint32_t)about.f_type;
    return 0;
}

const char *sc_io_posix_network_name(uint32_t fs_type)
{
    for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++)
        if (networks[i].type == fs_type)
            return networks[i].name;
    return NULL;
}
