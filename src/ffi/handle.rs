//! Handles: a generation and an index in a table, which C sees as a pointer and nobody dereferences.
//!
//! A handle's bits: kind (4), index (24), generation (32). It is never an aligned address, so a pointer into memory
//! passed by mistake finds nothing. A place whose generations are used up is given up, so no handle is ever given
//! out twice.
//!
//! Invariants, each kept by this file alone:
//!
//! - `live` holds the whole handle while the object is there, and something else before and after. It is the one
//!   word a call checks.
//! - **Shared use** (any thread, many at once): the call shows the handle in its thread's [`Slot`] before it checks
//!   `live`. Close changes `live` before it looks at the slots, and frees the object only when none shows the handle
//!   (see `fence` for what keeps the two steps in order).
//! - **Exclusive use**: `owner` says who has the object. Free is [`FREE`] with the place's generation, so that a claim
//!   that comes late can't take the place's next object; [`HELD`] with a thread's number is one call's use; a bare
//!   number is the thread the object is bound to for ever. Whoever has it keeps it from being closed: close claims it
//!   first, or, when the owner has ended, takes it over.
//! - A place's other fields are written before `live` publishes them, or by whoever has the object.
//!
//! Rejected: a reference count per object (two threads that use one store would fight over its cache line, 10–41 ns
//! against 3), freeing through epochs (close must know that the last call has ended, not that it will).

use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use super::fence;
use crate::base::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use crate::base::sync::thread::yield_now;
use crate::base::{Error, Result};

/// What a handle stands for; part of its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// `ring_t`
    Ring = 1,
    /// `wal_t`
    Wal = 2,
    /// `engine_t`
    Engine = 3,
    /// `engine_writebatch_t`
    WriteBatch = 4,
    /// What an `engine_view_t` pins.
    View = 5,
}

impl Kind {
    /// The C type's name, for error texts.
    fn name(self) -> &'static str {
        match self {
            Kind::Ring => "ring_t",
            Kind::Wal => "wal_t",
            Kind::Engine => "engine_t",
            Kind::WriteBatch => "engine_writebatch_t",
            Kind::View => "engine_view_t",
        }
    }
}

/// A type that lives behind handles. It is made and freed by any thread, hence `Send`.
///
/// # Safety
/// No two types have the same kind: the kind is all that tells what a place's pointer points to.
pub unsafe trait Object: Send + 'static {
    /// Its kind.
    const KIND: Kind;
    /// Whether it is ever used by [`Table::share`]: then close looks who does.
    const SHARED: bool;
}

/// How many handles one call shares at most.
const LANES: usize = 2;

#[cfg(not(feature = "shuttle"))]
const CHUNK: usize = 1024;
#[cfg(not(feature = "shuttle"))]
const CHUNKS: usize = 4096;
#[cfg(feature = "shuttle")]
const CHUNK: usize = 2;
#[cfg(feature = "shuttle")]
const CHUNKS: usize = 4;

const INDEX_SHIFT: u32 = 4;
const GENERATION_SHIFT: u32 = 28;
/// In `live`: a panic went through the object; only close may still use it.
const POISONED: u64 = 1 << 63;
/// In `owner`: one call's exclusive use; the rest is the thread's number.
const HELD: u64 = 1 << 63;
/// In `owner`: nobody's; the rest is the generation.
const FREE: u64 = 1 << 62;

fn index_of(handle: u64) -> usize {
    (handle >> INDEX_SHIFT) as usize & ((1 << (GENERATION_SHIFT - INDEX_SHIFT)) - 1)
}

/// What `owner` is while nobody has the object.
fn free_word(handle: u64) -> u64 {
    FREE | (handle >> GENERATION_SHIFT)
}

/// One place of the table.
#[derive(Debug)]
#[repr(align(64))]
struct Place {
    live: AtomicU64,
    owner: AtomicU64,
    object: AtomicPtr<()>,
    /// The owner's slot, to see whether the owner has ended.
    owner_slot: AtomicPtr<Slot>,
    /// The process the object was opened in.
    process: AtomicU32,
    generation: AtomicU32,
    next_free: AtomicU32,
}

impl Place {
    const fn new() -> Self {
        Place {
            live: AtomicU64::new(0),
            owner: AtomicU64::new(0),
            object: AtomicPtr::new(null_mut()),
            owner_slot: AtomicPtr::new(null_mut()),
            process: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            next_free: AtomicU32::new(0),
        }
    }
}

/// What a thread shows of itself: which thread it is and which handle it is using. Never freed, used again by later
/// threads.
#[derive(Debug)]
#[repr(align(128))]
pub struct Slot {
    /// The handles that the running call uses; 0 is none.
    using: [AtomicU64; LANES],
    /// Number of the thread; 0 when no thread has the slot.
    thread: AtomicU64,
    /// Set while a call is running, to refuse calls out of callbacks and signal handlers.
    pub(super) in_call: AtomicU32,
    next: AtomicPtr<Slot>,
}

impl Slot {
    /// The number of the thread that has it.
    pub fn thread(&self) -> u64 {
        self.thread.load(SeqCst)
    }

    /// Shows that the running call uses a handle. What is checked after this stays true until `hide`.
    #[inline]
    fn show(&self, handle: u64) -> &AtomicU64 {
        let free = self.using.iter().find(|lane| lane.load(Relaxed) == 0);
        let lane = free.expect("no call shares more handles than a slot has lanes");
        fence::store_before_load(lane, handle);
        lane
    }

    fn shows(&self, handle: u64) -> bool {
        self.using.iter().any(|lane| lane.load(SeqCst) == handle)
    }
}

/// The call uses the handle no more.
#[inline]
fn hide(lane: &AtomicU64) {
    lane.store(0, Release);
}

/// The table; one static in production, one per execution in tests.
#[derive(Debug)]
pub struct Table {
    chunks: [AtomicPtr<[Place; CHUNK]>; CHUNKS],
    /// Places never used so far begin here.
    fresh: AtomicU32,
    /// Free list: a tag against reuse in the upper half, index + 1 in the lower.
    free: AtomicU64,
    slots: AtomicPtr<Slot>,
    threads: AtomicU64,
}

impl Table {
    /// A table without places.
    pub const fn new() -> Self {
        Table {
            chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS],
            fresh: AtomicU32::new(0),
            free: AtomicU64::new(0),
            slots: AtomicPtr::new(null_mut()),
            threads: AtomicU64::new(0),
        }
    }

    /// A slot for a thread that has none, with a new thread number.
    pub fn take_slot(&self) -> &Slot {
        let thread = self.threads.fetch_add(1, SeqCst) + 1;
        for slot in self.slots() {
            if slot.thread() == 0 && slot.thread.compare_exchange(0, thread, SeqCst, SeqCst).is_ok() {
                return slot;
            }
        }
        let slot = Box::leak(Box::new(Slot {
            using: [const { AtomicU64::new(0) }; LANES],
            thread: AtomicU64::new(thread),
            in_call: AtomicU32::new(0),
            next: AtomicPtr::new(null_mut()),
        }));
        let mut head = self.slots.load(SeqCst);
        loop {
            slot.next.store(head, SeqCst);
            match self.slots.compare_exchange(head, slot, SeqCst, SeqCst) {
                Ok(_) => return slot,
                Err(now) => head = now,
            }
        }
    }

    /// The thread has ended (or wants no slot any more).
    pub fn give_slot_back(&self, slot: &Slot) {
        slot.using.iter().for_each(hide);
        slot.in_call.store(0, SeqCst);
        slot.thread.store(0, SeqCst);
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        let mut next = self.slots.load(SeqCst);
        std::iter::from_fn(move || {
            // SAFETY: a published slot is never freed (`take_slot` leaks it).
            let slot = unsafe { next.as_ref() }?;
            next = slot.next.load(SeqCst);
            Some(slot)
        })
    }

    fn place(&self, index: usize) -> Option<&Place> {
        let chunk = self.chunks.get(index / CHUNK)?.load(Acquire);
        // SAFETY: a published chunk is never freed (`fresh_place` leaks it).
        let chunk = unsafe { chunk.as_ref() }?;
        chunk.get(index % CHUNK)
    }

    fn fresh_place(&self) -> Result<usize> {
        let index = self.fresh.fetch_add(1, SeqCst) as usize;
        let Some(chunk) = self.chunks.get(index / CHUNK) else {
            self.fresh.fetch_sub(1, SeqCst);
            return Err(Error::system(
                libc::EMFILE,
                format!("{} handles are open in this process; close some", CHUNK * CHUNKS),
            ));
        };
        if chunk.load(SeqCst).is_null() {
            let made = Box::into_raw(Box::new([const { Place::new() }; CHUNK]));
            if chunk.compare_exchange(null_mut(), made, SeqCst, SeqCst).is_err() {
                // SAFETY: made just above, and not published: another thread's chunk was.
                drop(unsafe { Box::from_raw(made) });
            }
        }
        Ok(index)
    }

    fn take_place(&self) -> Result<usize> {
        let mut head = self.free.load(SeqCst);
        loop {
            let Some(index) = (head as u32).checked_sub(1) else { return self.fresh_place() };
            let place = self.place(index as usize).expect("the free list names places that exist");
            let tag = (head >> 32).wrapping_add(1) << 32;
            let next = tag | u64::from(place.next_free.load(Relaxed));
            match self.free.compare_exchange(head, next, SeqCst, SeqCst) {
                Ok(_) => return Ok(index as usize),
                Err(now) => head = now,
            }
        }
    }

    fn give_place_back(&self, index: usize, place: &Place) {
        if place.generation.load(Relaxed) == u32::MAX {
            return;
        }
        let mut head = self.free.load(SeqCst);
        loop {
            place.next_free.store(head as u32, Relaxed);
            let next = (head >> 32).wrapping_add(1) << 32 | (index as u64 + 1);
            match self.free.compare_exchange(head, next, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Puts an object in and returns its handle.
    ///
    /// # Errors
    /// `-EMFILE` when the table is full; the object is dropped.
    pub fn insert<T: Object>(&self, process: u32, object: T) -> Result<u64> {
        let index = self.take_place()?;
        let place = self.place(index).expect("a place just taken exists");
        let generation = place.generation.load(Relaxed) + 1;
        let handle =
            u64::from(generation) << GENERATION_SHIFT | (index as u64) << INDEX_SHIFT | T::KIND as u64;
        place.generation.store(generation, Relaxed);
        place.process.store(process, Relaxed);
        place.object.store(Box::into_raw(Box::new(object)).cast(), Relaxed);
        place.owner.store(free_word(handle), Release);
        place.live.store(handle, Release);
        Ok(handle)
    }

    /// The place a handle names, whoever lives there now.
    #[inline]
    fn find<T: Object>(&self, handle: u64) -> Result<&Place> {
        let kind_fits = handle & ((1 << INDEX_SHIFT) - 1) == T::KIND as u64;
        match self.place(index_of(handle)) {
            Some(place) if kind_fits => Ok(place),
            _ => Err(gone::<T>(handle)),
        }
    }

    #[inline]
    fn check<T: Object>(place: &Place, process: u32, handle: u64, closing: bool) -> Result<()> {
        let live = place.live.load(SeqCst);
        if live == handle && place.process.load(Relaxed) == process {
            return Ok(());
        }
        Err(refusal::<T>(place, live, process, handle)).or_else(|e| match e {
            Error::Internal(_) if closing => Ok(()),
            e => Err(e),
        })
    }

    /// Shared use, by any number of threads at a time.
    ///
    /// # Errors
    /// [`Error::Stale`], [`Error::Forked`], or [`Error::Internal`] after a panic.
    #[inline]
    pub fn share<'a, T: Object + Sync>(
        &'a self,
        slot: &'a Slot,
        process: u32,
        handle: u64,
    ) -> Result<Shared<'a, T>> {
        let place = self.find::<T>(handle)?;
        let lane = slot.show(handle);
        if let Err(e) = Self::check::<T>(place, process, handle, false) {
            hide(lane);
            return Err(e);
        }
        let object = NonNull::new(place.object.load(Relaxed)).expect("a live place has its object");
        Ok(Shared { place, lane, handle, object: object.cast(), _type: PhantomData })
    }

    /// Exclusive use. With [`Claim::Bind`] the object is the calling thread's from now on; a bound object's owner
    /// gets here without an atomic exchange.
    ///
    /// # Errors
    /// As [`Table::share`]; [`Error::WrongThread`] when another thread is the owner, [`Error::Busy`] when
    /// another thread is using it and `claim` is [`Claim::Refuse`].
    #[inline]
    pub fn own<'a, T: Object>(
        &'a self,
        slot: &'a Slot,
        process: u32,
        handle: u64,
        claim: Claim,
    ) -> Result<Owned<'a, T>> {
        let place = self.find::<T>(handle)?;
        Self::check::<T>(place, process, handle, claim == Claim::Inherit)?;
        let after = if place.owner.load(Acquire) == slot.thread() {
            // Bound to this thread: nobody else may close it, so what was checked stays true.
            After::Bound
        } else {
            let before = Self::hold::<T>(place, slot, process, handle, claim, claim == Claim::Inherit)?;
            if claim == Claim::Bind { After::Bind } else { After::Restore(before) }
        };
        let object = NonNull::new(place.object.load(Relaxed)).expect("a live place has its object");
        Ok(Owned { place, slot, handle, object: object.cast(), after, _type: PhantomData })
    }

    /// Takes the owner word for one call; returns what it was before.
    fn hold<T: Object>(
        place: &Place,
        slot: &Slot,
        process: u32,
        handle: u64,
        claim: Claim,
        closing: bool,
    ) -> Result<u64> {
        loop {
            if let Some(before) = Self::try_hold::<T>(place, slot, handle, claim, closing)? {
                // It can't go any more, but the call before may have poisoned it.
                let checked = Self::check::<T>(place, process, handle, closing);
                return checked.map(|()| before).inspect_err(|_| place.owner.store(before, Release));
            }
            // It may go while this waits.
            Self::check::<T>(place, process, handle, closing)?;
            yield_now();
        }
    }

    /// One attempt at the owner word: what it was before, or nothing when another thread's call has it, or the place is
    /// another object's by now.
    fn try_hold<T: Object>(
        place: &Place,
        slot: &Slot,
        handle: u64,
        claim: Claim,
        closing: bool,
    ) -> Result<Option<u64>> {
        let (free, held) = (free_word(handle), HELD | slot.thread());
        let owner = match place.owner.compare_exchange(free, held, SeqCst, SeqCst) {
            Ok(_) => return Ok(Some(free)),
            Err(owner) => owner,
        };
        if owner & (HELD | FREE) == 0 && owner != 0 {
            if closing && Self::owner_ended(place, owner) {
                // A thread that has ended binds nothing any more: if the word is still this, it is still this object's.
                return Ok(place.owner.compare_exchange(owner, held, SeqCst, SeqCst).ok());
            }
            let text = format!(
                "this {} is bound to the thread of its first submit, wait or reap; only that thread may use it, \
                 and another may close it once that thread has ended",
                T::KIND.name()
            );
            return if place.live.load(SeqCst) & !POISONED == handle {
                Err(Error::WrongThread(text.into()))
            } else {
                Err(gone::<T>(handle))
            };
        }
        if claim == Claim::Refuse && owner & HELD != 0 && place.live.load(SeqCst) == handle {
            let text =
                format!("this {} is being used by another thread: one thread at a time", T::KIND.name());
            return Err(Error::Busy(text.into()));
        }
        Ok(None)
    }

    fn owner_ended(place: &Place, owner: u64) -> bool {
        // SAFETY: a slot, once published, is never freed; null only before the first binding.
        unsafe { place.owner_slot.load(SeqCst).as_ref() }.is_none_or(|slot| slot.thread() != owner)
    }

    /// Takes an exclusively used object out: the handle is stale at once, calls in progress are waited for. `ready`
    /// may refuse, then nothing changes. The second value says that the closer is not the owner: the owner has ended.
    ///
    /// # Errors
    /// As [`Table::own`], and what `ready` says. A poisoned object can be taken.
    pub fn take_owned<T: Object>(
        &self,
        slot: &Slot,
        process: u32,
        handle: u64,
        ready: impl FnOnce(&T) -> Result<()>,
    ) -> Result<(Box<T>, bool)> {
        let place = self.find::<T>(handle)?;
        Self::check::<T>(place, process, handle, true)?;
        let mut orphaned = false;
        // SAFETY: `own` is not called here: the object is this thread's, by the owner word, when this is called, and the
        // thread is in no other call, so nobody else uses it.
        let ready = || ready(unsafe { &*place.object.load(Relaxed).cast::<T>() });
        if place.owner.load(Acquire) == slot.thread() {
            ready()?;
        } else {
            let before = Self::hold::<T>(place, slot, process, handle, Claim::Wait, true)?;
            let restore = Owned::<T>::restoring(place, slot, handle, before);
            ready()?;
            // Goes on holding the owner word: whoever waits for it finds the handle gone.
            std::mem::forget(restore);
            orphaned = before != free_word(handle);
        }
        place.live.store(0, SeqCst);
        if T::SHARED {
            self.wait_for_calls(slot, handle);
        }
        Ok((self.free(handle, place), orphaned))
    }

    /// Takes a shared object out: the handle is stale at once, calls in progress are waited for.
    ///
    /// # Errors
    /// As [`Table::share`]. A poisoned object can be taken.
    pub fn take_shared<T: Object>(&self, slot: &Slot, process: u32, handle: u64) -> Result<Box<T>> {
        let place = self.find::<T>(handle)?;
        Self::check::<T>(place, process, handle, true)?;
        let live = place.live.load(SeqCst);
        let mine = live & !POISONED == handle && place.live.compare_exchange(live, 0, SeqCst, SeqCst).is_ok();
        if !mine && place.live.compare_exchange(handle | POISONED, 0, SeqCst, SeqCst).is_err() {
            return Err(gone::<T>(handle));
        }
        if T::SHARED {
            self.wait_for_calls(slot, handle);
        }
        Ok(self.free(handle, place))
    }

    fn wait_for_calls(&self, own: &Slot, handle: u64) {
        fence::before_looking();
        for slot in self.slots() {
            let mut rounds = 0u32;
            while !std::ptr::eq(slot, own) && slot.shows(handle) {
                pause(rounds);
                rounds = rounds.saturating_add(1);
            }
        }
    }

    fn free<T: Object>(&self, handle: u64, place: &Place) -> Box<T> {
        let object = place.object.load(Relaxed);
        place.object.store(null_mut(), Relaxed);
        place.owner_slot.store(null_mut(), Relaxed);
        // SAFETY: put in by `insert` as a `T` (the handle's kind says so), taken out by the one closer that
        // changed `live`, after the last call that could see it.
        let object = unsafe { Box::from_raw(object.cast::<T>()) };
        self.give_place_back(index_of(handle), place);
        object
    }
}

impl Default for Table {
    fn default() -> Self {
        Table::new()
    }
}

/// Waits a little: first by giving the processor away, then by sleeping, since a call in progress may be a long read.
pub(super) fn pause(rounds: u32) {
    if cfg!(feature = "shuttle") || rounds < 64 {
        yield_now();
    } else {
        let a_little = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 50_000 };
        // Interrupted or not: the condition is looked at again.
        let _ = rustix::thread::nanosleep(&a_little);
    }
}

#[cold]
fn gone<T: Object>(handle: u64) -> Error {
    let name = T::KIND.name();
    if handle == 0 {
        return Error::invalid(format!("the {name} is NULL"));
    }
    Error::Stale(format!("{handle:#x} is no open {name}: it was closed already, or never opened").into())
}

#[cold]
fn refusal<T: Object>(place: &Place, live: u64, process: u32, handle: u64) -> Error {
    if live & !POISONED != handle || handle == 0 {
        return gone::<T>(handle);
    }
    if place.process.load(SeqCst) != process {
        return Error::Forked;
    }
    let name = T::KIND.name();
    Error::Internal(format!("an earlier call caught a defect and poisoned this {name}; close it").into())
}

/// How a call claims an object that is not bound to its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// For this call; waits for another thread's call.
    Wait,
    /// For this call; refuses when another thread is using it.
    Refuse,
    /// For ever: the calling thread is the owner from now on. Waits for another thread's call.
    Bind,
    /// For this call, to close what stands on it: also when its owner has ended or it is poisoned.
    Inherit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// It is bound to this thread already.
    Bound,
    /// It becomes this thread's.
    Bind,
    /// The owner word becomes what it was: free, or an owner that has ended.
    Restore(u64),
}

/// Shared use of an object during one call.
#[derive(Debug)]
pub struct Shared<'a, T: Object> {
    place: &'a Place,
    lane: &'a AtomicU64,
    handle: u64,
    object: NonNull<T>,
    _type: PhantomData<&'a T>,
}

impl<T: Object> std::ops::Deref for Shared<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the slot names the handle, and `live` was seen after that: close waits for this call.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Object> Drop for Shared<'_, T> {
    fn drop(&mut self) {
        poison_if_panicking(self.place, self.handle);
        hide(self.lane);
    }
}

/// Exclusive use of an object during one call.
#[derive(Debug)]
pub struct Owned<'a, T: Object> {
    place: &'a Place,
    slot: &'a Slot,
    handle: u64,
    object: NonNull<T>,
    after: After,
    _type: PhantomData<&'a mut T>,
}

impl<'a, T: Object> Owned<'a, T> {
    /// Holds nothing open but the owner word, which its drop restores.
    fn restoring(place: &'a Place, slot: &'a Slot, handle: u64, before: u64) -> Self {
        let (object, after) = (NonNull::dangling(), After::Restore(before));
        Owned { place, slot, handle, object, after, _type: PhantomData }
    }

    /// Makes the object the calling thread's from now on, if it isn't.
    pub fn bind(&mut self) {
        if self.after != After::Bound {
            self.after = After::Bind;
        }
    }
}

impl<T: Object> std::ops::Deref for Owned<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the owner word is this thread's, so this is the only use of the object, but for shared uses of
        // parts that are `Sync` (`ring_wake`), which never make a `&mut`.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Object> Drop for Owned<'_, T> {
    fn drop(&mut self) {
        poison_if_panicking(self.place, self.handle);
        match self.after {
            After::Bound => {}
            After::Restore(owner) => self.place.owner.store(owner, Release),
            After::Bind => {
                self.place.owner_slot.store(std::ptr::from_ref(self.slot).cast_mut(), Relaxed);
                self.place.owner.store(self.slot.thread(), Release);
            }
        }
    }
}

fn poison_if_panicking(place: &Place, handle: u64) {
    if std::thread::panicking() {
        // Fails when somebody poisoned it before, which is as good.
        let _ = place.live.compare_exchange(handle, handle | POISONED, SeqCst, SeqCst);
    }
}
