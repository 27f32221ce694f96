# Tests of the I/O back ends and of the staging pool.
sc_add_test(NAME test_store_frames SOURCES test_frames.c LINKS sc_store)
sc_add_test(NAME test_store_io SOURCES test_io.c LINKS sc_store)
sc_add_test(NAME test_store_io_sim SOURCES test_io_sim.c LINKS sc_store)
sc_add_test(NAME test_store_io_fallback SOURCES test_io_fallback.c LINKS sc_store)
