# Sources of the I/O part of sc_store: the interface, its back ends, the staging pool.
set(SC_STORE_IO_SOURCES frames.c io.c io_backend.c io_cost.c io_posix.c io_pread.c io_uring.c
    io_uring_open.c)
