/* io_posix: POSIX files, directories and locks: entries of struct sc_io_backend for both back ends.
 * Threads: any.
 * Tests: tests/unit/store/test_io.c, test_io_uring.c */
#ifndef SC_STORE_IO_IO_POSIX_H
#define SC_STORE_IO_IO_POSIX_H

#include "store/io/io_backend.h"

spec_status sc_io_posix_mkdir(struct sc_io *io, const char *path, struct spec_error *reterr);
spec_status sc_io_posix_dir_check(struct sc_io *io, const char *path, struct spec_error *reterr);
/* Sets statfs's f_type of path. Returns 0 or an errno. */
int sc_io_posix_fs_type(const char *path, uint32_t *ret_type);
/* Returns the name of a file system that may not forward locks between hosts, else NULL. */
const char *sc_io_posix_network_name(uint32_t fs_type);
spec_status sc_io_posix_dir_keep(struct sc_io *io, const char *path, struct spec_error *reterr);
spec_status sc_io_posix_file_open(struct sc_io *io, struct sc_io_file *file,
                                  struct spec_error *reterr);
void sc_io_posix_file_close(struct sc_io *io, struct sc_io_file *file);
spec_status sc_io_posix_file_size(struct sc_io *io, struct sc_io_file *file, uint64_t *ret_bytes,
                                  struct spec_error *reterr);
spec_status sc_io_posix_file_reserve(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                     struct spec_error *reterr);
spec_status sc_io_posix_file_truncate(struct sc_io *io, struct sc_io_file *file, uint64_t bytes,
                                      struct spec_error *reterr);
spec_status sc_io_posix_file_sync(struct sc_io *io, struct sc_io_file *file,
                                  struct spec_error *reterr);
spec_status sc_io_posix_file_pread(struct sc_io *io, struct sc_io_file *file, void *buffer,
                                   uint64_t bytes, uint64_t offset, struct spec_error *reterr);
spec_status sc_io_posix_file_pwrite(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                                    uint64_t bytes, uint64_t offset, struct spec_error *reterr);
spec_status sc_io_posix_file_append(struct sc_io *io, struct sc_io_file *file, const void *buffer,
                                    uint64_t bytes, uint64_t *ret_end, struct spec_error *reterr);
spec_status sc_io_posix_file_same(struct sc_io *io, struct sc_io_file *file, const char *path,
                                  bool *ret_same, struct spec_error *reterr);
uint64_t sc_io_posix_stamp(struct sc_io *io, const char *path);
spec_status sc_io_posix_unlink(struct sc_io *io, const char *path, struct spec_error *reterr);
spec_status sc_io_posix_rename(struct sc_io *io, const char *from, const char *to,
                               struct spec_error *reterr);
spec_status sc_io_posix_list(struct sc_io *io, const char *path,
                             void (*on_name)(const char *name, void *user), void *user,
                             struct spec_error *reterr);
spec_status sc_io_posix_free_bytes(struct sc_io *io, const char *path, uint64_t *ret_bytes,
                                   struct spec_error *reterr);
spec_status sc_io_posix_file_claim(struct sc_io *io, struct sc_io_file *file,
                                   struct spec_error *reterr);
void sc_io_posix_file_unclaim(struct sc_io *io, struct sc_io_file *file);
spec_status sc_io_posix_file_lock_shared(struct sc_io *io, struct sc_io_file *file,
                                         struct spec_error *reterr);
spec_status sc_io_posix_file_join(struct sc_io *io, struct sc_io_file *file, uint32_t places,
                                  uint32_t *ret_place, struct spec_error *reterr);
uint32_t sc_io_posix_file_joined(struct sc_io *io, struct sc_io_file *file, uint32_t places);
void *sc_io_posix_file_map(struct sc_io *io, struct sc_io_file *file, uint64_t bytes);
void sc_io_posix_unmap(struct sc_io *io, void *memory, uint64_t bytes);
void sc_io_posix_file_share(struct sc_io *io, struct sc_io_file *file);
bool sc_io_posix_file_is_shared(struct sc_io *io, struct sc_io_file *file);
spec_status sc_io_posix_file_lock(struct sc_io *io, struct sc_io_file *file,
                                  struct spec_error *reterr);

/* After EINVAL: true if the transfer began direct and the file is buffered now: repeat it. */
bool sc_io_posix_goes_buffered(struct sc_io_file *file, bool was_direct);
/* After a whole transfer: drops the page cache of a direct file that fell back to buffered. */
void sc_io_posix_moved(const struct sc_io_file *file, uint64_t bytes, uint64_t offset);
/* Returns true if a short direct read met the file's end; continuing would give EINVAL. */
bool sc_io_posix_is_end(const struct sc_io_file *file, uint64_t moved_bytes);

/* Transfer all bytes: continue short transfers, repeat EINTR, fall back to buffered if direct is
 * refused. Return 0 or an errno; EIO at the file's end. */
int sc_io_posix_read(struct sc_io_file *file, uint8_t *buffer, uint64_t bytes, uint64_t offset);
int sc_io_posix_write(struct sc_io_file *file, const uint8_t *buffer, uint64_t bytes,
                      uint64_t offset);

#endif
