//! The store as blocking calls: every method may be called from any thread, through a shared reference.

use std::path::Path;
use std::sync::Arc;

use super::batch::{Edit, WriteBatch};
use super::commit::Level;
use super::core::Core;
use super::keeper::Keeper;
use super::options::Options;
use super::view::View;
use crate::base::Result;
use crate::ring::Io;

/// An open store.
pub struct Store {
    core: Arc<Core>,
    keeper: Keeper,
}

impl Store {
    /// Opens the store in a directory.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::base::Error::Busy) when it is open elsewhere; `Corrupt` with file and offset when its
    /// log is damaged; `Version` when a later version wrote it; `Unsupported` for options that can't be had;
    /// `-ENOTEMPTY` for a directory of other files; `-EEXIST`, `-ENOENT` as `error_if_exists` and
    /// `create_if_missing` say; what the system says, with the reason in words. Nothing is changed by a refusal.
    pub fn open(path: &Path, options: Options) -> Result<Store> {
        let io = Io::inline();
        let core = Arc::new(io.block_on(Core::open(&io, path, options))??);
        let keeper = Keeper::start(&core)?;
        Ok(Store { core, keeper })
    }

    /// Sets a key's value, at the store's default level.
    ///
    /// # Errors
    /// `TooLarge` for a key over 65,535 bytes or a value over 1 GiB, nothing is written; `-ENOSPC` when the disk is
    /// full, nothing is written and writes work again when there is space; `Indeterminate` when the device failed
    /// under this write: it may or may not be there after reopening; `Poisoned` when it failed before; `Closed`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.apply(Edit::Put { key, value }, self.core.options().durability)
    }

    /// Removes a key, which need not be there, at the store's default level.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.apply(Edit::Delete { key }, self.core.options().durability)
    }

    /// Sets a key's value: visible at once, durable with its group, soon.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn batch_put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.apply(Edit::Put { key, value }, Level::Volatile)
    }

    fn apply(&self, edit: Edit<'_>, level: Level) -> Result<()> {
        let io = Io::inline();
        io.block_on(self.core.apply(&io, edit, level))?
    }

    /// Writes a batch: all of it or nothing.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn write(&self, batch: &WriteBatch, level: Level) -> Result<()> {
        let io = Io::inline();
        io.block_on(self.core.write(&io, batch, level))?
    }

    /// Returns when all that was written before, at whatever level, is durable.
    ///
    /// # Errors
    /// As [`Store::put`]; an error other than `-ENOSPC` stays until the store is reopened.
    pub fn flush_batch(&self) -> Result<()> {
        let io = Io::inline();
        io.block_on(self.core.flush(&io))?
    }

    /// A key's value, copied.
    ///
    /// # Errors
    /// `NotFound`; `TooLarge` for a key over 65,535 bytes; `Closed`.
    pub fn get(&self, key: &[u8]) -> Result<Vec<u8>> {
        self.core.get_with(key, <[u8]>::to_vec)
    }

    /// Shows `visit` a key's value without copying it.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_with<T>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.core.get_with(key, visit)
    }

    /// A key's value to keep; any thread may drop it, also after the store is closed.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_view(&self, key: &[u8]) -> Result<View> {
        self.core.get_view(key)
    }

    /// Sequences up to this one are on the device.
    ///
    /// # Errors
    /// `Closed`.
    pub fn durable_sequence(&self) -> Result<u64> {
        self.core.durable_sequence()
    }

    /// A property by name: one of the lines of `stats`, or `stats` itself, or `prometheus`.
    ///
    /// # Errors
    /// `Invalid` for a name that isn't known; `Closed`.
    pub fn property(&self, name: &str) -> Result<String> {
        self.core.property(name)
    }

    /// Makes everything durable, seals the log, stops the background thread and gives the lock back. Calls under way
    /// on other threads either end as usual or as `Closed`. Closing twice does nothing.
    ///
    /// # Errors
    /// What stood in the way of making it durable; the store is closed all the same.
    pub fn close(&self) -> Result<()> {
        if !self.core.begin_close() {
            return Ok(());
        }
        self.keeper.stop(&self.core);
        let io = Io::inline();
        io.block_on(self.core.finish_close(&io))?
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Whoever wants to know closes first.
        if let Err(e) = self.close() {
            log::error!("closing a dropped store: {e}");
        }
    }
}
