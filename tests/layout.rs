//! Structs have the same size and offsets in C, by the header, as in Rust.
#![allow(clippy::disallowed_methods, reason = "this test writes small files for compilers")]

mod c_compiler;

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process::Command;

use c_compiler::{compile, compilers};
use iouring_engine::ffi::engine::engine_options_t;
use iouring_engine::ffi::ring_types::{
    ioe_buffer_t, ring_capabilities_t, ring_completion_t, ring_info_t, ring_op_t, ring_options_t,
};
use iouring_engine::ffi::status::ioe_slice_t;
use iouring_engine::ffi::view::engine_view_t;
use iouring_engine::ffi::wal_types::{wal_event_t, wal_options_t, wal_recover_options_t, wal_recovery_t};

const HEADER: &str = include_str!("../include/iouring_engine.h");

/// Structs with their fields: name, then offset, in the order of the header.
type Layouts = BTreeMap<&'static str, (usize, Vec<(&'static str, usize)>)>;

macro_rules! layouts {
    ($($name:ident { $($field:ident),* $(,)? })*) => {{
        let mut layouts = Layouts::new();
        $(layouts.insert(
            stringify!($name),
            (size_of::<$name>(), vec![$((stringify!($field).trim_start_matches("r#"), offset_of!($name, $field))),*]),
        );)*
        layouts
    }};
}

fn rust() -> Layouts {
    layouts! {
        ioe_slice_t { data, len }
        engine_view_t { data, len, pin }
        ring_options_t {
            size, driver, flags, flags_wanted, allowed_opcodes, entries, cq_entries, sqpoll_cpu, sqpoll_idle_ms,
            attach_to, numa_node, file_slots, buffer_count, buffer_size, select_count, select_size, huge_pages,
        }
        ring_completion_t { user_data, result, flags, data, buffer, reserved }
        ring_op_t {
            opcode, flags, slot_or_fd, buffer_or_pointer, offset_in_buffer, len, offset, into_slot, events,
            timeout_us, user_data,
        }
        ioe_buffer_t { data, len, index, reserved }
        ring_info_t {
            size, driver, flags, entries, cq_entries, allowed_opcodes, file_slots, buffer_count, buffer_size,
            pinned_bytes, notes,
        }
        wal_options_t { size, ring, driver, segment_bytes, checkpoint_every, sync, seal_after_ms, direct }
        wal_event_t { user_data, sequence, result, reserved, reserved2 }
        wal_recover_options_t { size, salvage }
        wal_recovery_t {
            size, records, bytes, first_sequence, last_sequence, segments, proven_through, unproven_records,
            unproven_bytes, torn_bytes, torn, sealed, possible_damage, damages, damaged_bytes,
        }
        ring_capabilities_t {
            size, io_uring, sqpoll, sq_aff, iopoll, attach, cqsize, submit_all, coop_taskrun, taskrun_flag,
            single_issuer, defer_taskrun, restrictions, napi, file_slots, registered_buffers, link_timeout,
            multishot_poll,
        }
        engine_options_t {
            size, driver, sync, durability, memtable_bytes, block_cache_bytes, memory_limit_bytes, log_bytes_max,
            block_bytes, bloom_bits_per_key, compression, direct_reads, read_only, create_if_missing,
            error_if_exists, batch_max_entries, batch_max_bytes, batch_max_delay_ms, background_threads, numa_node,
        }
    }
}

/// The structs of the header, with their fields' names in order.
fn declared() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut structs = BTreeMap::new();
    let mut rest = HEADER;
    while let Some(start) = rest.find("typedef struct {") {
        rest = &rest[start..];
        let (body, end) = rest.split_once("\n} ").expect("a struct ends");
        let name = end.split(';').next().expect("a split has a first part");
        let fields = body.lines().skip(1).map(str::trim).filter(|line| !line.starts_with("//"));
        let fields = fields.filter_map(|line| line.strip_suffix(';')).map(|line| {
            let name = line.rsplit([' ', '*']).next().expect("a field has a name");
            name.split('[').next().expect("a split has a first part")
        });
        structs.insert(name, fields.collect());
        rest = end;
    }
    structs
}

#[test]
fn every_struct_of_the_header_is_compared() {
    let rust: BTreeMap<_, Vec<_>> =
        rust().into_iter().map(|(name, (_, fields))| (name, fields.iter().map(|f| f.0).collect())).collect();
    assert_eq!(declared(), rust);
}

#[test]
fn sizes_and_offsets_are_the_same_in_c() {
    let mut text = String::from("#include <stdio.h>\n#include \"iouring_engine.h\"\nint main(void) {\n");
    let mut expected = String::new();
    for (name, (size, fields)) in rust() {
        text.push_str(&format!("    printf(\"{name} %zu\\n\", sizeof({name}));\n"));
        expected.push_str(&format!("{name} {size}\n"));
        for (field, offset) in fields {
            text.push_str(&format!("    printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));\n"));
            expected.push_str(&format!("{name}.{field} {offset}\n"));
        }
    }
    text.push_str("    return 0;\n}\n");
    for compiler in compilers(false) {
        let program = compile(&compiler, "c11", "layout", &text, &[]);
        let printed = Command::new(program).output().expect("a program just compiled runs");
        assert_eq!(String::from_utf8_lossy(&printed.stdout), expected);
    }
}
