//! The one background thread of a store: prepares the spare segment, leads due groups of weaker writes, writes the
//! idle seal, all off the writers' path.
//!
//! It sleeps until the commit path has news, or until the time that the commit path named: an idle store wakes nobody.
//! In the simulator the keeper is a task, so that the seed schedules it.

use std::sync::Arc;

use super::commit::Next;
use super::core::Core;
use crate::base::Result;
use crate::base::sync::{self, Mutex, thread::JoinHandle};
use crate::ring::Io;

/// After a failure that may pass (a full disk), the keeper tries again so much later.
const RETRY_US: u64 = 100_000;

/// The thread, until it is stopped.
pub struct Keeper(Mutex<Option<JoinHandle<()>>>);

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// What the system says when it can make no thread.
    pub fn start(core: &Arc<Core>) -> Result<Self> {
        let core = core.clone();
        let thread = sync::spawn("ioe-keeper", move || {
            let io = Io::inline();
            loop {
                // Read before everything that a call may be about: the store's end, and what the step looks at.
                let seen = core.commit().keeper_calls();
                if core.is_closed() {
                    return;
                }
                match io.block_on(step(&core, &io)) {
                    Ok(next) => core.commit().park_keeper(&io, seen, next),
                    // The inline driver never fails as a whole; should it, blocking calls say so.
                    Err(e) => return log::error!("the keeper thread ends: {e}"),
                }
            }
        })?;
        Ok(Keeper(Mutex::new(Some(thread))))
    }

    /// Waits for the thread's end. The store has begun to close.
    pub fn stop(&self, core: &Core) {
        core.commit().wake_keeper();
        if let Some(thread) = self.0.lock().take() {
            // A panic on the thread was a defect; its message has been printed, closing goes on.
            if thread.join().is_err() {
                log::error!("the keeper thread ended by a panic");
            }
        }
    }
}

/// One round of the keeper's work; says when the next one is due.
pub async fn step(core: &Core, io: &Io) -> Next {
    match core.commit().maintain(io).await {
        Ok(next) => next,
        Err(_) if core.commit().is_poisoned() => Next::Idle,
        Err(e) => {
            log::warn!("the store's background work will be tried again: {e}");
            Next::At(io.now_us().saturating_add(RETRY_US))
        }
    }
}
