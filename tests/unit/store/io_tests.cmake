# Tests of the I/O back ends and of the staging pool.
sc_add_folder(NAME io_fixture SOURCES io_fixture.c LINKS sim_disk cmocka)
sc_add_test(NAME test_store_frames SOURCES test_staging_pool.c LINKS sc_store)
sc_add_test(NAME test_store_io SOURCES test_io.c LINKS io_fixture)
sc_add_test(NAME test_store_io_cost SOURCES test_io_cost.c LINKS io_fixture
            THREADS threads_may_submit_and_ask_at_once)
sc_add_test(NAME test_store_io_network SOURCES test_io_network.c LINKS store_fixture)
target_link_options(test_store_io_network PRIVATE "-Wl,--wrap=sc_io_posix_fs_type")
sc_add_test(NAME test_store_watch SOURCES test_watch.c LINKS io_fixture)
sc_add_test(NAME test_store_io_sim SOURCES test_io_sim.c LINKS io_fixture)
sc_add_test(NAME test_store_io_uring SOURCES test_io_uring.c LINKS io_fixture)
foreach(function submit_and_wait_timeout queue_init_params register_probe register_buffers_sparse
                 register_files_sparse)
  target_link_options(test_store_io_uring PRIVATE "-Wl,--wrap=io_uring_${function}")
endforeach()
sc_add_test(NAME test_store_io_fallback SOURCES test_io_fallback.c LINKS io_fixture)
