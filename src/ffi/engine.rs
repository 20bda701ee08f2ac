//! The store, `engine_t`.

use std::ffi::{c_char, c_int, c_void};

use super::args::{self, Out, Prefixed, as_handle, as_pointer};
use super::guard::guard;
use super::handle::{Claim, Kind, Object};
use super::writebatch::{Batch, engine_writebatch_t};
use crate::base::{Error, Result};
use crate::engine::commit::Level;
use crate::engine::options::{Compression, DriverChoice, Options};
use crate::engine::store::Store;
use crate::wal::sync::Wish;

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
    /// Memory for blocks of tables. 64 MiB.
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
    /// Makes the store when there is none; else -ENOENT. 1.
    pub create_if_missing: c_int,
    /// -EEXIST when there is a store already.
    pub error_if_exists: c_int,
    /// A group of engine_batch_put is due at so many entries. 128.
    pub batch_max_entries: u32,
    /// And at so many bytes. 256 KiB.
    pub batch_max_bytes: usize,
    /// And after so many milliseconds; 0: as soon as the log is free. 10.
    pub batch_max_delay_ms: u32,
    /// Threads for work in the background. 1.
    pub background_threads: u32,
    /// Memory of this NUMA node; -1: any.
    pub numa_node: c_int,
}

// SAFETY: `repr(C)`, `size` first, integers only.
unsafe impl Prefixed for engine_options_t {
    fn defaults() -> Self {
        let o = Options::default();
        engine_options_t {
            size: size_of::<Self>(),
            driver: IOE_DRIVER_AUTO,
            sync: IOE_SYNC_AUTO,
            durability: IOE_DURABLE,
            memtable_bytes: o.memtable_bytes as usize,
            block_cache_bytes: o.block_cache_bytes as usize,
            memory_limit_bytes: o.memory_limit_bytes as usize,
            log_bytes_max: o.log_bytes_max as usize,
            block_bytes: o.block_bytes as usize,
            bloom_bits_per_key: o.bloom_bits_per_key as c_int,
            compression: IOE_COMPRESSION_NONE,
            direct_reads: c_int::from(o.direct_reads),
            read_only: c_int::from(o.read_only),
            create_if_missing: c_int::from(o.create_if_missing),
            error_if_exists: c_int::from(o.error_if_exists),
            batch_max_entries: o.batch_max_entries,
            batch_max_bytes: o.batch_max_bytes as usize,
            batch_max_delay_ms: o.batch_max_delay_ms,
            background_threads: o.background_threads,
            numa_node: o.numa_node,
        }
    }
}

impl engine_options_t {
    fn checked(&self) -> Result<Options> {
        let in_range = |value: i64, max: i64, name: &str| {
            let range = 0..=max;
            if range.contains(&value) {
                Ok(())
            } else {
                Err(Error::invalid(format!("{name} is {value}, not 0 to {max}")))
            }
        };
        in_range(i64::from(self.bloom_bits_per_key), 64, "bloom_bits_per_key")?;
        if !self.block_bytes.is_multiple_of(4096) || !(4096..=1 << 20).contains(&self.block_bytes) {
            let text = format!("block_bytes is {}, not a multiple of 4096 up to 1 MiB", self.block_bytes);
            return Err(Error::invalid(text));
        }
        if self.numa_node < -1 {
            return Err(Error::invalid(format!("numa_node is {}, not a node and not -1", self.numa_node)));
        }
        Ok(Options {
            driver: match self.driver {
                IOE_DRIVER_AUTO => DriverChoice::Auto,
                IOE_DRIVER_URING => DriverChoice::Uring,
                IOE_DRIVER_POSIX => DriverChoice::Posix,
                other => return Err(unknown("driver", other)),
            },
            sync: wish(self.sync)?,
            durability: level(self.durability)?,
            compression: match self.compression {
                IOE_COMPRESSION_NONE => Compression::None,
                IOE_COMPRESSION_LZ4 => Compression::Lz4,
                IOE_COMPRESSION_ZSTD => Compression::Zstd,
                other => return Err(unknown("compression", other)),
            },
            memtable_bytes: self.memtable_bytes as u64,
            block_cache_bytes: self.block_cache_bytes as u64,
            memory_limit_bytes: self.memory_limit_bytes as u64,
            log_bytes_max: self.log_bytes_max as u64,
            block_bytes: self.block_bytes as u32,
            bloom_bits_per_key: self.bloom_bits_per_key as u32,
            direct_reads: self.direct_reads != 0,
            read_only: self.read_only != 0,
            create_if_missing: self.create_if_missing != 0,
            error_if_exists: self.error_if_exists != 0,
            batch_max_entries: self.batch_max_entries,
            batch_max_bytes: self.batch_max_bytes as u64,
            batch_max_delay_ms: self.batch_max_delay_ms,
            background_threads: self.background_threads,
            numa_node: self.numa_node,
            ..Options::default()
        })
    }
}

pub(super) fn unknown(what: &str, value: c_int) -> Error {
    Error::invalid(format!("{value} is no value of {what} that this version of the library knows"))
}

pub(super) fn wish(sync: c_int) -> Result<Wish> {
    match sync {
        IOE_SYNC_AUTO => Ok(Wish::Auto),
        IOE_SYNC_LINKED => Ok(Wish::Linked),
        IOE_SYNC_DSYNC => Ok(Wish::Dsync),
        IOE_SYNC_SYSCALL => Ok(Wish::Syscall),
        other => Err(unknown("sync", other)),
    }
}

fn level(durability: c_int) -> Result<Level> {
    match durability {
        IOE_DURABLE => Ok(Level::Durable),
        IOE_BUFFERED => Ok(Level::Buffered),
        IOE_VOLATILE => Ok(Level::Volatile),
        other => Err(unknown("durability", other)),
    }
}

// SAFETY: the one type of this kind.
unsafe impl Object for Store {
    const KIND: Kind = Kind::Engine;
    const SHARED: bool = true;
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

/// Opens the store in the directory `dir`, which is made when it is missing (its parent must be there), recovers
/// what its log holds, and sets `*out`, to be closed by engine_close. `o` NULL means the defaults.
///
/// A directory holds one store, and is open once: a second open, by this process or another, gives IOE_E_BUSY (by
/// another after 3 seconds, in which the writes of a killed process may still be landing).
///
/// Errors: -EINVAL; IOE_E_BUSY; IOE_E_CORRUPT with file and offset when the log is damaged; IOE_E_VERSION;
/// IOE_E_UNSUPPORTED for options that can't be had; -ENOTEMPTY for a directory of other files, -ENOTDIR, -ENOENT,
/// -EEXIST (error_if_exists), -EACCES, -EROFS, -ENOSPC, -EIO. A refusal changes nothing in the directory.
/// Any thread. Blocks: reads the whole log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_open(
    dir: *const c_char,
    o: *const engine_options_t,
    out: *mut *mut engine_t,
) -> c_int {
    guard("engine_open", |call| {
        call.start();
        // SAFETY: convention 4: `dir` is a C string.
        let dir = unsafe { args::path(dir, "dir") }?;
        let out = Out::new(out, "out")?;
        // SAFETY: convention 5: `o` has `o->size` bytes.
        let options = unsafe { args::options(o, "engine_options_t") }?.checked()?;
        call.prepare()?;
        let handle = call.insert(Store::open(dir, options)?)?;
        // SAFETY: convention 4: `out` can be written.
        unsafe { out.set(as_pointer(handle)) };
        Ok(0)
    })
}

/// Closes the store: makes everything written so far durable and gives the directory free. NULL does nothing.
/// Waits for calls in progress on other threads. Views live on.
///
/// Errors: what stood in the way of making it durable (-EIO, -ENOSPC, IOE_E_POISONED, IOE_E_INDETERMINATE); the
/// store is closed and the handle gone all the same. Any thread. Blocks: writes to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_close(e: *mut engine_t) -> c_int {
    guard("engine_close", |call| {
        let Some(store) = call.close_shared::<Store>(as_handle(e))? else { return Ok(0) };
        store.close().map(|()| 0)
    })
}

/// Sets the value of a key. With the default level, IOE_DURABLE, it is on the device when this returns 0.
///
/// Errors: -EINVAL; IOE_E_TOO_LARGE for a key over 65,535 bytes or a value over 1 GiB; -ENOSPC: nothing was
/// written, and writes work again when there is space; IOE_E_INDETERMINATE: the device failed under this write,
/// which may or may not be there after reopening; IOE_E_POISONED: it failed before. Any thread. Blocks until the
/// level is reached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_put(
    e: *mut engine_t,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> c_int {
    guard("engine_put", |call| {
        let store = call.share::<Store>(as_handle(e))?;
        // SAFETY: convention 4: both reach their lengths, and stay as they are during the call.
        let (key, value) = unsafe { (args::key(key, key_len)?, args::value(value, value_len)?) };
        store.put(key, value).map(|()| 0)
    })
}

/// Copies the value of a key into `buffer`. `*len` is the room of `buffer` before, and the value's length after,
/// also with IOE_E_TOO_SMALL; `buffer` may be NULL when `*len` is 0, to ask for the length.
///
/// Errors: -EINVAL; IOE_E_NOT_FOUND; IOE_E_TOO_SMALL; IOE_E_TOO_LARGE for a key over 65,535 bytes. Any thread.
/// Waits for no writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_get(
    e: *mut engine_t,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    len: *mut usize,
) -> c_int {
    guard("engine_get", |call| {
        let store = call.share::<Store>(as_handle(e))?;
        // SAFETY: convention 4: the key reaches its length; `len` is initialised.
        let (key, len) = unsafe { (args::key(key, key_len)?, args::room_for(buffer, len)?) };
        // SAFETY: convention 4: `buffer` has `*len` bytes.
        store.get_with(key, |value| unsafe { args::copy_out(value, buffer, len) })??;
        Ok(0)
    })
}

/// Removes a key. One that isn't there is no error.
///
/// Errors, thread, blocking: as engine_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_delete(e: *mut engine_t, key: *const c_void, key_len: usize) -> c_int {
    guard("engine_delete", |call| {
        let store = call.share::<Store>(as_handle(e))?;
        // SAFETY: convention 4: the key reaches its length.
        store.delete(unsafe { args::key(key, key_len) }?).map(|()| 0)
    })
}

/// Writes a batch: all of it or nothing, at the level `durability` (IOE_DURABLE, IOE_BUFFERED, IOE_VOLATILE). The
/// batch stays as it is. An empty one does nothing.
///
/// Errors: as engine_put, and IOE_E_BUSY when another thread is using the batch. Any thread. Blocks until the level
/// is reached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_write(
    e: *mut engine_t,
    b: *const engine_writebatch_t,
    durability: c_int,
) -> c_int {
    guard("engine_write", |call| {
        let store = call.share::<Store>(as_handle(e))?;
        let batch = call.own::<Batch>(as_handle(b), Claim::Refuse)?;
        let level = level(durability)?;
        store.write(&batch.borrow(), level).map(|()| 0)
    })
}

/// Sets the value of a key: visible at once, durable with its group, which is due after batch_max_entries,
/// batch_max_bytes or batch_max_delay_ms. engine_flush_batch waits for it.
///
/// Errors: as engine_put. Any thread. Waits only while the group before is being written and this one is full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_batch_put(
    e: *mut engine_t,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> c_int {
    guard("engine_batch_put", |call| {
        let store = call.share::<Store>(as_handle(e))?;
        // SAFETY: convention 4: both reach their lengths, and stay as they are during the call.
        let (key, value) = unsafe { (args::key(key, key_len)?, args::value(value, value_len)?) };
        store.batch_put(key, value).map(|()| 0)
    })
}

/// Returns when everything written before, at whatever level and by whatever thread, is durable.
///
/// Errors: -ENOSPC, to be tried again when there is space; any other error stays until the store is reopened:
/// IOE_E_INDETERMINATE, IOE_E_POISONED. Any thread. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_flush_batch(e: *mut engine_t) -> c_int {
    guard("engine_flush_batch", |call| call.share::<Store>(as_handle(e))?.flush_batch().map(|()| 0))
}

/// Sets `*sequence` to the highest sequence of which all up to it are durable. Each put and delete takes one
/// sequence, in the order in which they become visible.
///
/// Errors: -EINVAL. Any thread, never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_durable_sequence(e: *mut engine_t, sequence: *mut u64) -> c_int {
    guard("engine_durable_sequence", |call| {
        let store = call.share::<Store>(as_handle(e))?;
        let sequence = Out::new(sequence, "sequence")?;
        let durable = store.durable_sequence()?;
        // SAFETY: convention 4: `sequence` can be written.
        unsafe { sequence.set(durable) };
        Ok(0)
    })
}

/// Copies a property's text into `buffer`, with a NUL byte behind it. `*len` is the room of `buffer` before, and
/// the text's length without the NUL after; with IOE_E_TOO_SMALL it is the room needed, the NUL included. "stats"
/// is all properties, one `name value` per line; "prometheus" is the same in that program's format; any one name of
/// "stats" gives its value.
///
/// Errors: -EINVAL, also for a name that isn't known; IOE_E_TOO_SMALL. Any thread, never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_property(
    e: *mut engine_t,
    name: *const c_char,
    buffer: *mut c_char,
    len: *mut usize,
) -> c_int {
    guard("engine_property", |call| {
        let store = call.share::<Store>(as_handle(e))?;
        // SAFETY: convention 4: `name` is a C string, `len` is initialised.
        let (name, len) = unsafe { (args::name(name, "name")?, args::room_for(buffer.cast(), len)?) };
        let text = store.property(name)?;
        // SAFETY: convention 4: `buffer` has `*len` bytes.
        unsafe { args::text_out(text, buffer, len) }?;
        Ok(0)
    })
}
