/* frozen_objects: the frozen layout of spec_objects.h, as frozen.c has that of spec_connector.h. */
#include "abi/spec_objects.h"

#include "abi/frozen.h"

FROZEN(sizeof(spec_domain) == 8 && sizeof(spec_operation) == 8);

VALUE(SPEC_OBJECTS_MAJOR, 0);
VALUE(SPEC_OBJECTS_MINOR, 2);
VALUE(SPEC_OBJECT_BYTES_MAX, UINT64_C(268435456));
VALUE(SPEC_KEY_BYTES_MAX, 1024);
VALUE(SPEC_KEYS_MAX, 65536);
VALUE(SPEC_PIECES_MAX, 16);
VALUE(SPEC_DOMAIN_BYTES_MAX, 4096);
VALUE(SPEC_DOMAINS_MAX, 1024);
VALUE(SPEC_HOLD_NS_MAX, UINT64_C(60000000000));
VALUE(SPEC_TIMEOUT_CONFIGURED, UINT64_C(0));
VALUE(SPEC_TIMEOUT_NONE, UINT64_MAX);
VALUE(SPEC_KEY_ABSENT, 0);
VALUE(SPEC_KEY_DONE, 1);
VALUE(SPEC_KEY_PENDING, 2);
VALUE(SPEC_KEY_STORED, 3);
VALUE(SPEC_EXISTS_HOLD, 1);
VALUE(SPEC_EXISTS_PREFIX, 2);
VALUE(SPEC_REMOVE_ERASE, 1);
VALUE(SPEC_EVENT_STORED, 1);
VALUE(SPEC_EVENT_REMOVED, 2);
VALUE(SPEC_EVENT_CLEARED, 3);
VALUE(SPEC_REMOVED_EVICTED, 1);
VALUE(SPEC_REMOVED_DELETED, 2);
VALUE(SPEC_REMOVED_DAMAGED, 3);
VALUE(SPEC_REMOVED_ELSEWHERE, 4);

SIZE(spec_keys, 32);
AT(spec_keys, struct_size, 0, 4);
AT(spec_keys, count, 4, 4);
AT(spec_keys, data, 8, 8);
AT(spec_keys, lengths, 16, 8);
AT(spec_keys, key_bytes, 24, 4);
AT(spec_keys, reserved, 28, 4);

SIZE(spec_pieces, 32);
AT(spec_pieces, struct_size, 0, 4);
AT(spec_pieces, pieces, 4, 4);
AT(spec_pieces, addresses, 8, 8);
AT(spec_pieces, sizes, 16, 8);
AT(spec_pieces, piece_bytes, 24, 8);

SIZE(spec_objects_params, 48);
AT(spec_objects_params, struct_size, 0, 4);
AT(spec_objects_params, rank, 4, 4);
AT(spec_objects_params, rank_count, 8, 4);
AT(spec_objects_params, log_level_max, 12, 4);
AT(spec_objects_params, config, 16, 8);
AT(spec_objects_params, alloc, 24, 8);
AT(spec_objects_params, log, 32, 8);
AT(spec_objects_params, log_user, 40, 8);

SIZE(spec_domain_params, 40);
AT(spec_domain_params, struct_size, 0, 4);
AT(spec_domain_params, reserved, 4, 4);
AT(spec_domain_params, identity, 8, 16);
AT(spec_domain_params, bytes_min, 24, 8);
AT(spec_domain_params, bytes_max, 32, 8);

SIZE(spec_exists_params, 32);
AT(spec_exists_params, struct_size, 0, 4);
AT(spec_exists_params, flags, 4, 4);
AT(spec_exists_params, hold_ns, 8, 8);
AT(spec_exists_params, ret_status, 16, 8);
AT(spec_exists_params, ret_bytes, 24, 8);

SIZE(spec_transfer_params, 32);
AT(spec_transfer_params, struct_size, 0, 4);
AT(spec_transfer_params, reserved, 4, 4);
AT(spec_transfer_params, timeout_ns, 8, 8);
AT(spec_transfer_params, ret_status, 16, 8);
AT(spec_transfer_params, user, 24, 8);

SIZE(spec_completion, 24);
AT(spec_completion, operation, 0, 8);
AT(spec_completion, user, 8, 8);
AT(spec_completion, done_count, 16, 4);
AT(spec_completion, status, 20, 4);

SIZE(spec_object_event, 40);
AT(spec_object_event, sequence, 0, 8);
AT(spec_object_event, domain, 8, 8);
AT(spec_object_event, bytes, 16, 8);
AT(spec_object_event, kind, 24, 4);
AT(spec_object_event, reason, 28, 4);
AT(spec_object_event, key_offset, 32, 4);
AT(spec_object_event, key_bytes, 36, 4);

SIZE(spec_read_events, 72);
AT(spec_read_events, struct_size, 0, 4);
AT(spec_read_events, reserved, 4, 4);
AT(spec_read_events, domain, 8, 8);
AT(spec_read_events, sequence, 16, 8);
AT(spec_read_events, ret_events, 24, 8);
AT(spec_read_events, capacity, 32, 8);
AT(spec_read_events, key_room, 40, 8);
AT(spec_read_events, key_room_bytes, 48, 8);
AT(spec_read_events, ret_count, 56, 8);
AT(spec_read_events, ret_missed, 64, 8);

SIZE(spec_list, 72);
AT(spec_list, struct_size, 0, 4);
AT(spec_list, reserved, 4, 4);
AT(spec_list, domain, 8, 8);
AT(spec_list, cursor, 16, 8);
AT(spec_list, sequence, 24, 8);
AT(spec_list, ret_events, 32, 8);
AT(spec_list, capacity, 40, 8);
AT(spec_list, key_room, 48, 8);
AT(spec_list, key_room_bytes, 56, 8);
AT(spec_list, ret_count, 64, 8);

SIZE(spec_object_stats, 232);
AT(spec_object_stats, struct_size, 0, 4);
AT(spec_object_stats, reserved, 4, 4);
AT(spec_object_stats, objects, 8, 8);
AT(spec_object_stats, bytes, 16, 8);
AT(spec_object_stats, disk_bytes_used, 24, 8);
AT(spec_object_stats, disk_bytes_max, 32, 8);
AT(spec_object_stats, index_bytes, 40, 8);
AT(spec_object_stats, waiting_puts, 48, 8);
AT(spec_object_stats, inflight_bytes, 56, 8);
AT(spec_object_stats, exists_keys, 64, 8);
AT(spec_object_stats, exists_hits, 72, 8);
AT(spec_object_stats, get_keys, 80, 8);
AT(spec_object_stats, get_hits, 88, 8);
AT(spec_object_stats, get_bytes, 96, 8);
AT(spec_object_stats, put_keys, 104, 8);
AT(spec_object_stats, put_stored, 112, 8);
AT(spec_object_stats, put_bytes, 120, 8);
AT(spec_object_stats, put_present, 128, 8);
AT(spec_object_stats, put_no_space, 136, 8);
AT(spec_object_stats, put_timeouts, 144, 8);
AT(spec_object_stats, put_waits, 152, 8);
AT(spec_object_stats, put_wait_ns, 160, 8);
AT(spec_object_stats, evicted_objects, 168, 8);
AT(spec_object_stats, evicted_bytes, 176, 8);
AT(spec_object_stats, deleted_objects, 184, 8);
AT(spec_object_stats, damaged_objects, 192, 8);
AT(spec_object_stats, io_errors, 200, 8);
AT(spec_object_stats, bounce_bytes, 208, 8);
AT(spec_object_stats, events_lost, 216, 8);
AT(spec_object_stats, checkpoints, 224, 8);

SIZE(spec_objects_api, 152);
AT(spec_objects_api, struct_size, 0, 4);
AT(spec_objects_api, major, 4, 2);
AT(spec_objects_api, minor, 6, 2);
AT(spec_objects_api, open, 8, 8);
AT(spec_objects_api, close, 16, 8);
AT(spec_objects_api, domain_open, 24, 8);
AT(spec_objects_api, domain_close, 32, 8);
AT(spec_objects_api, exists, 40, 8);
AT(spec_objects_api, get, 48, 8);
AT(spec_objects_api, put, 56, 8);
AT(spec_objects_api, get_submit, 64, 8);
AT(spec_objects_api, put_submit, 72, 8);
AT(spec_objects_api, poll, 80, 8);
AT(spec_objects_api, event_fd_set, 88, 8);
AT(spec_objects_api, cancel, 96, 8);
AT(spec_objects_api, remove, 104, 8);
AT(spec_objects_api, clear, 112, 8);
AT(spec_objects_api, touch, 120, 8);
AT(spec_objects_api, list, 128, 8);
AT(spec_objects_api, events, 136, 8);
AT(spec_objects_api, stats, 144, 8);
