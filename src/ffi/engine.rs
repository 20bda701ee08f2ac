//! The store, `engine_t`.

use std::ffi::c_int;

use super::args::{self, Prefixed};
use super::guard::guard;

/// The way operations happen: io_uring where it can be had, else POSIX calls.
pub const IOE_DRIVER_AUTO: c_int = 0;
/// io_uring; IOE_E_UNSUPPORTED, with the reason, where it can't be had.
pub const IOE_DRIVER_URING: c_int = 1;
/// A pool of threads for files, epoll for the rest.
pub const IOE_DRIVER_POSIX: c_int = 2;

/// How a log makes writes durable: by the rule that measurements gave; the "stats" property tells which it was.
pub const IOE_SYNC_AUTO: c_int = 0;
/// One linked chain: write, fdatasync, checkpoint.
pub const IOE_SYNC_LINKED: c_int = 1;
/// Writes that are durable in themselves (RWF_DSYNC).
pub const IOE_SYNC_DSYNC: c_int = 2;
/// System calls: pwrite, fdatasync.
pub const IOE_SYNC_SYSCALL: c_int = 3;

/// A write returns when it is on the device.
pub const IOE_DURABLE: c_int = 0;
/// A write returns when the kernel has it: it survives a killed process, not a power cut.
pub const IOE_BUFFERED: c_int = 1;
/// A write returns when it is in memory; it goes to the log with the next group.
pub const IOE_VOLATILE: c_int = 2;

/// Blocks are stored as they are.
pub const IOE_COMPRESSION_NONE: c_int = 0;
/// Fast, moderate.
pub const IOE_COMPRESSION_LZ4: c_int = 1;
/// Slower, stronger.
pub const IOE_COMPRESSION_ZSTD: c_int = 2;

/// An open store.
#[allow(non_camel_case_types, reason = "C's name")]
pub struct engine_t {
    _private: (),
}

/// What a store is opened with; see engine_options_init. The fields that speak of tables (block_cache_bytes,
/// block_bytes, bloom_bits_per_key, compression, direct_reads) are checked, and have no effect in this version.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct engine_options_t {
    /// sizeof(engine_options_t).
    pub size: usize,
    /// IOE_DRIVER_...
    pub driver: c_int,
    /// IOE_SYNC_...
    pub sync: c_int,
    /// What engine_put, engine_delete and engine_write wait for by default: IOE_DURABLE, _BUFFERED or _VOLATILE.
    pub durability: c_int,
    /// A memtable of this size becomes a table. 64 MiB.
    pub memtable_bytes: usize,
    /// Memory for blocks of tables. 32 MiB.
    pub block_cache_bytes: usize,
    /// Ceiling of the store's memory; 0: none.
    pub memory_limit_bytes: usize,
    /// More log than this makes tables of the memtable; 0: four times memtable_bytes.
    pub log_bytes_max: usize,
    /// Size of a table's block on disk. 4096.
    pub block_bytes: usize,
    /// Bits of the Bloom filter per key; 0: no filter. 10.
    pub bloom_bits_per_key: c_int,
    /// IOE_COMPRESSION_...
    pub compression: c_int,
    /// Tables are read with direct I/O.
    pub direct_reads: c_int,
    /// Opens without writing a byte. IOE_E_UNSUPPORTED in this version.
    pub read_only: c_int,
    /// Makes the directory's store when there is none; else -ENOENT. 1.
    pub create_if_missing: c_int,
    /// -EEXIST when there is a store already.
    pub error_if_exists: c_int,
    /// A group of engine_batch_put is due at so many entries. 128.
    pub batch_max_entries: u32,
    /// And at so many bytes. 256 KiB.
    pub batch_max_bytes: usize,
    /// And after so many milliseconds; 0: as soon as the log is free. 0.
    pub batch_max_delay_ms: u32,
    /// Threads for work in the background; 0: the library's choice.
    pub background_threads: u32,
    /// Memory of this NUMA node; -1: any.
    pub numa_node: c_int,
}

// SAFETY: `repr(C)`, `size` first, integers only.
unsafe impl Prefixed for engine_options_t {
    fn defaults() -> Self {
        engine_options_t {
            size: size_of::<Self>(),
            driver: IOE_DRIVER_AUTO,
            sync: IOE_SYNC_AUTO,
            durability: IOE_DURABLE,
            memtable_bytes: 64 << 20,
            block_cache_bytes: 32 << 20,
            memory_limit_bytes: 0,
            log_bytes_max: 0,
            block_bytes: 4096,
            bloom_bits_per_key: 10,
            compression: IOE_COMPRESSION_NONE,
            direct_reads: 0,
            read_only: 0,
            create_if_missing: 1,
            error_if_exists: 0,
            batch_max_entries: 128,
            batch_max_bytes: 256 << 10,
            batch_max_delay_ms: 0,
            background_threads: 0,
            numa_node: -1,
        }
    }
}

/// Fills `o`, a struct of `size` bytes (sizeof(engine_options_t)), with the defaults.
///
/// Errors: -EINVAL. Any thread, never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_options_init(o: *mut engine_options_t, size: usize) -> c_int {
    guard("engine_options_init", |call| {
        call.start();
        // SAFETY: convention 5: `o` has `size` bytes.
        unsafe { args::init(o, size, "engine_options_t") }?;
        Ok(0)
    })
}
